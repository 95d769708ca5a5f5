"""Triggerers as processes of their own: killed, frozen and thawed at bad moments."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from store.world import KEY
from triggerer.conftest import Rig

# The triggerer of a test, in a process that can be killed: address, home, settings from the environment.
PROGRAM = """
import os, sys
from pathlib import Path
from stannel.settings import load_settings
from stannel.store import Store, connect
from stannel.store.vault import Vault
from stannel.triggerer.loop import Triggerer
address, home, key = sys.argv[1:]
Triggerer(Store(connect(address), Vault(key)), load_settings(Path(home), os.environ)).run()
"""


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for child in found:
        child.kill()
        child.wait()


def launch(rig: Rig, address: str, children: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "STANNEL__TRIGGERER__JOB_HEARTBEAT_SEC": "0.2", "STANNEL__TRIGGERER__CANCEL_GRACE": "1"}
    command = [sys.executable, "-c", PROGRAM, address, str(rig.folder), KEY]
    children.append(subprocess.Popen(command, env=environ))
    return children[-1]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def host_pid(rig: Rig, line: int = 0) -> int:
    rig.until(lambda: len(rig.mark_lines()) > line)
    return int(rig.mark_lines()[line].split()[1])


@pytest.mark.parametrize("kind", ["WhenFile", "Blocks", "HoldsTheGil"])
def test_a_killed_triggerer_takes_its_hosts_with_it(
    one_rig: Rig, sqlite_address: str, children: list[subprocess.Popen[bytes]], kind: str
) -> None:
    one_rig.defer(kind, path=str(one_rig.file), marks=str(one_rig.marks))
    child = launch(one_rig, sqlite_address, children)
    pid = host_pid(one_rig)
    child.kill()
    child.wait()
    one_rig.until(lambda: not is_alive(pid))


def test_the_triggers_of_a_killed_triggerer_run_elsewhere_before_three_seconds_are_over(
    one_rig: Rig, sqlite_address: str, children: list[subprocess.Popen[bytes]]
) -> None:
    one_rig.defer("WhenFile", path=str(one_rig.file), marks=str(one_rig.marks))
    child = launch(one_rig, sqlite_address, children)
    host_pid(one_rig)
    one_rig.start()
    child.kill()
    child.wait()
    one_rig.until(lambda: one_rig.marked().count("run") == 2)
    one_rig.file.touch()
    one_rig.until_states("scheduled")


def test_a_frozen_triggerer_that_comes_back_changes_nothing_any_more(
    one_rig: Rig, sqlite_address: str, children: list[subprocess.Popen[bytes]]
) -> None:
    one_rig.defer("WhenFile", path=str(one_rig.file), marks=str(one_rig.marks), payload="once")
    child = launch(one_rig, sqlite_address, children)
    frozen_host = host_pid(one_rig)
    [before] = [one.owner for one in one_rig.store.triggers.all()]
    os.kill(child.pid, signal.SIGSTOP)
    other = one_rig.start()
    one_rig.until(lambda: one_rig.marked().count("run") == 2)
    # Both of them see the file now; only the new owner's word counts.
    one_rig.file.touch()
    one_rig.until_states("scheduled")
    os.kill(child.pid, signal.SIGCONT)
    one_rig.until(
        lambda: any(
            one.owner not in (before, other.owner) for one in one_rig.store.leases.all() if one.kind == "triggerer"
        )
    )
    assert one_rig.resumed() == {"a": ("resume", {"event": "once"})}
    one_rig.until(lambda: not is_alive(frozen_host))


def test_sigterm_is_no_business_of_a_host(one_rig: Rig) -> None:
    triggerer = one_rig.start()
    one_rig.defer("WhenFile", path=str(one_rig.file), marks=str(one_rig.marks))
    pid = host_pid(one_rig)
    os.kill(pid, signal.SIGTERM)
    one_rig.file.touch()
    one_rig.until_states("scheduled")
    assert triggerer.host_pids == [pid]
