"""The process itself: what it loads, how large it is, and what happens when it is told nothing."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HostOf = Callable[..., Any]

FORBIDDEN = ("sqlalchemy", "alembic", "psycopg", "sqlite3", "cryptography", "jinja2", "httpx")
LARGEST_IDLE = 35 * 1024


def test_it_loads_no_database_and_nothing_heavy() -> None:
    program = "import sys, stannel.triggerer.host.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint(FORBIDDEN)
    assert not any(name.startswith(("stannel.store", "stannel.execution")) for name in loaded)


def test_idle_it_stays_small(host_of: HostOf) -> None:
    host = host_of()
    host.beats(1)
    rollup = Path(f"/proc/{host.process.pid}/smaps_rollup").read_text()
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
    assert 0 < sizes["Pss"] < LARGEST_IDLE


def test_it_leaves_when_the_triggerer_does_before_the_first_word(host_of: HostOf) -> None:
    host = host_of()
    assert host.hang_up() == 0
