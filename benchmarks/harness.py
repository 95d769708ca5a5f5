"""What every benchmark shares: options, workloads, the figures drawn from a run's times, and the one JSON line."""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

ROOT = Path(__file__).resolve().parents[1]
# The PostgreSQL launcher is the one the tests use.
sys.path.insert(0, str(ROOT / "tests"))

# Modules in this folder of an engine's home can be imported by its tasks and triggers.
CODE = "code"

Answer = TypeVar("Answer")


# --- what is measured ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunTimes:
    """When a run started and when each of its tasks started and ended, in seconds on the wall clock."""

    started: float
    tasks: tuple[tuple[float, float], ...]

    @property
    def tasks_per_second(self) -> float:
        """From the run's start to the end of its last task, so that what the engine does first counts too."""
        return len(self.tasks) / (max(end for _, end in self.tasks) - self.started)

    @property
    def ms_per_hop(self) -> float:
        """From the end of one task of a chain to the end of the next: deciding, starting, running and storing it."""
        ends = sorted(end for _, end in self.tasks)
        return (ends[-1] - ends[0]) / (len(ends) - 1) * 1000


class Engine(Protocol):
    """A running engine, whichever it is."""

    pid: int

    def run(self, dag_id: str) -> RunTimes:
        """Trigger the DAG, wait for the run's end and tell its times. A run that fails is an error."""

    def is_ready(self) -> bool:
        """Whether a triggered run would start now."""

    def first_task_end(self, dag_id: str) -> float | None:
        """When the first task of the DAG succeeded; None while none has."""


class Start(Protocol):
    """Starts an engine from an empty home, and stops it at the end of the `with` block."""

    def __call__(
        self, home: Path, dags: Path, *, store: str, parallelism: int
    ) -> contextlib.AbstractContextManager[Engine]: ...


class Side(Protocol):
    """A module that knows how to start an engine and how its authors' package is called."""

    PACKAGE: str
    running: Start


# --- workloads: the same file for both engines, but for the name of the package --------------------------------------

HEADER = (
    "from datetime import datetime, timedelta\n\nfrom {package} import DAG, task\n\n\ndef nothing():\n    pass\n\n\n"
)
INDEPENDENT = """\
with DAG("{dag_id}", schedule=None, max_active_tasks={count}, max_active_runs=4):
    for number in range({count}):
        task(task_id=f"nothing_{{number}}")(nothing)()
"""
CHAIN = """\
with DAG("{dag_id}", schedule=None):
    before = None
    for number in range({count}):
        after = task(task_id=f"link_{{number}}")(nothing)()
        if before is not None:
            before >> after
        before = after
"""
# It is due while an engine still starts, so its first attempt may fail through no fault of its own.
ONCE = """\
with DAG("{dag_id}", schedule="@once", start_date=datetime(2024, 1, 1)):
    task(task_id="only", retries=5, retry_delay=timedelta(seconds=1))(nothing)()
"""


def write_dag(folder: Path, package: str, body: str, dag_id: str, count: int = 1) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    source = HEADER.format(package=package) + body.format(dag_id=dag_id, count=count)
    (folder / f"{dag_id}.py").write_text(source)


# --- options and the answer ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    against_airflow: bool
    store: str
    count: int
    parallelism: int
    repeat: int


def options(bench: str, *, count: int = 1, repeat: int = 1, stores: Sequence[str] = ("sqlite", "postgres")) -> Options:
    parser = argparse.ArgumentParser(prog=f"./dev bench {bench}")
    parser.add_argument("--against", choices=["airflow"], help="measure Apache Airflow too, in the same run")
    parser.add_argument("--store", choices=stores, default=stores[0], help="where Stannel keeps its state")
    parser.add_argument("--count", type=int, default=count, help="size of the workload (default: %(default)s)")
    parser.add_argument("--parallelism", type=int, default=16, help="tasks at once, in both engines")
    parser.add_argument("--repeat", type=int, default=repeat, help="runs; the best one counts (default: %(default)s)")
    given = parser.parse_args()
    return Options(given.against == "airflow", given.store, given.count, given.parallelism, given.repeat)


def print_result(
    bench: str, unit: str, better: str, stannel: float | None, airflow: float | None, **more: object
) -> None:
    """Print the one line. `ratio` above 1 means that Stannel is better, whichever way the unit counts."""
    ratio = None
    if stannel and airflow:
        ratio = round(stannel / airflow if better == "higher" else airflow / stannel, 2)
    line = {"bench": bench, "unit": unit, "better": better, "stannel": _rounded(stannel), "airflow": _rounded(airflow)}
    rest = {name: _rounded(value) for name, value in more.items()}
    print(json.dumps({**line, "ratio": ratio, **rest, "cores": os.cpu_count()}), flush=True)


def _rounded(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def note(text: str) -> None:
    """Progress goes to standard error; standard output is the JSON line alone."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


# --- processes -------------------------------------------------------------------------------------------------------


def process_tree(root: int) -> list[int]:
    """`root` and every living descendant of it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _stat(int(entry.name))) is not None:
            children.setdefault(int(parent[1]), []).append(int(entry.name))
    tree = [root]
    for pid in tree:
        tree.extend(children.get(pid, []))
    return tree


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; None when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def pss_mb(pids: Sequence[int]) -> float:
    """Memory of the processes with each shared page counted once: the sum of their proportional set sizes."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


def cpu_seconds(root: int) -> float:
    """Processor time of the tree so far, including that of children already reaped."""
    stats = [stat for pid in process_tree(root) if (stat := _stat(pid)) is not None]
    return sum(int(tick) for stat in stats for tick in stat[11:15]) / os.sysconf("SC_CLK_TCK")


def idle_cpu_percent(root: int, seconds: float) -> float:
    before, started = cpu_seconds(root), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(root) - before) / (time.monotonic() - started) * 100


def wait_for(
    question: Callable[[], Answer | None],
    what: str,
    seconds: float,
    every: float = 0.05,
    process: "subprocess.Popen[bytes] | None" = None,
) -> Answer:
    """The first answer that is not None or False; TimeoutError naming `what` when there is none in time.

    When `process` ends there will be none either.
    """
    deadline = time.monotonic() + seconds
    while True:
        if answer := question():
            return answer
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"{what} did not happen: the process ended with code {process.returncode}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {seconds:.0f} s")
        time.sleep(every)


@contextlib.contextmanager
def background(
    command: Sequence[str], env: dict[str, str], log: Path, patience: float = 30
) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a program of several processes, and end all of them afterwards."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    except Exception:
        sys.stderr.write(log.read_text(errors="replace")[-4000:])
        raise
    finally:
        tree = process_tree(process.pid)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
        # Whatever did not follow its parent; a pid that is gone by now is what we want.
        for pid in tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def empty_home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="stannel-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def clean_environment(**more: str) -> dict[str, str]:
    """This environment without what would change how either engine starts."""
    dropped = ("PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in dropped and not name.startswith(("AIRFLOW", "STANNEL"))
    }
    return {**kept, **more}
