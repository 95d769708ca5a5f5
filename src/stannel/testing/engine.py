"""A whole engine in a folder of its own, driven from a test through the front door."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from stannel.errors import StannelError, UnknownId
from stannel.model.ids import run_id_for
from stannel.model.run import Run, RunType, TaskInstance
from stannel.model.states import RUN_ENDS
from stannel.settings import Settings, load_settings
from stannel.store import Store
from stannel.store.database import SCHEDULER
from stannel.store.leases import Lease
from stannel.store.opening import open_store
from stannel.store.runs import NewRun
from stannel.store.signals import wait
from stannel.store.trigger_records import TriggerRecord

Found = TypeVar("Found")

_LOOK_SECONDS = 0.2


class EngineTrouble(StannelError):
    """The engine under test did not do what was waited for; its last words are part of the message."""

    def __init__(self, what: str, output: str) -> None:
        super().__init__(f"{what}. The engine's last words:\n{output}")
        self.what, self.output = what, output


class Engine:
    """`stannel standalone` as processes of its own, with a home, a DAG folder and a store that the test can look into.

    Use it as a context manager: `with Engine(tmp_path) as engine:`. Nothing of it survives the block.
    """

    def __init__(self, folder: Path, *, database: str | None = None, settings: Mapping[str, str] | None = None) -> None:
        self.home = folder / "home"
        self.dags_folder = folder / "dags"
        self.dags_folder.mkdir(parents=True, exist_ok=True)
        self.home.mkdir(parents=True, exist_ok=True)
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("STANNEL_")},
            "STANNEL_HOME": str(self.home),
            "STANNEL__CORE__DAGS_FOLDER": str(self.dags_folder),
            **({"STANNEL__DATABASE__SQL_ALCHEMY_CONN": database} if database else {}),
            **(settings or {}),
        }
        self.settings: Settings = load_settings(self.home, self.environ)
        self.store: Store = open_store(self.settings)
        self.output = folder / "standalone.out"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add_dag_file(self, name: str, source: str) -> Path:
        """Put a file into the DAG folder; a running engine finds it by itself."""
        path = self.dags_folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path

    def start(self, *command: str, seconds: float = 30.0) -> subprocess.Popen[bytes]:
        """Start a program of the engine, `standalone` unless told otherwise; returns when it is ready.

        `standalone` has a triggerer in it. For triggerers that can be killed one by one start
        `standalone --no-triggerer` and `triggerer`, as often as needed; the process that is returned has the pid.
        """
        with self.output.open("ab") as out:
            before = out.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", "stannel.cli.main", *(command or ("standalone",))],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)

        def is_ready() -> bool:
            if process.poll() is not None:
                raise EngineTrouble(f"It ended with status {process.returncode} instead of getting ready", self._tail())
            lines = self.output.read_bytes()[before:].splitlines()
            return any(line.startswith(b"ready") for line in lines)

        self.wait_until(is_ready, seconds=seconds, what="it did not get ready")
        return process

    def wait_for_dag(self, dag_id: str, seconds: float = 30.0) -> None:
        """Return once the DAG is known and its file is not broken."""

        def is_there() -> bool:
            with contextlib.suppress(UnknownId):
                status = self.store.dags.get(dag_id)
                return status.is_active and not status.is_broken
            return False

        self.wait_until(is_there, seconds=seconds, what=f"the DAG {dag_id!r} did not appear")

    def trigger(self, dag_id: str, *, conf: dict[str, Any] | None = None, run_id: str | None = None) -> Run:
        """Make a run of a DAG, as `stannel dags trigger` does."""
        self.wait_for_dag(dag_id)
        status = self.store.dags.get(dag_id)
        now = datetime.now(UTC)
        new = NewRun(
            run_id=run_id or run_id_for(RunType.MANUAL, now),
            run_type=RunType.MANUAL,
            run_after=now,
            logical_date=now,
            conf=conf or {},
        )
        return self.store.runs.create(status.version, self.store.dags.spec(status.version), new, now=now)

    def wait_for_run(self, run: Run, seconds: float = 60.0) -> Run:
        """The run as it ended."""

        def has_ended() -> bool:
            return self.store.runs.get(run.dag_id, run.run_id).state in RUN_ENDS

        self.wait_until(has_ended, seconds=seconds, what=f"the run {run.run_id!r} of {run.dag_id!r} did not end")
        return self.store.runs.get(run.dag_id, run.run_id)

    def run(self, dag_id: str, **kwargs: Any) -> Run:
        """Trigger a DAG and wait for the end of its run."""
        return self.wait_for_run(self.trigger(dag_id, **kwargs))

    def tasks(self, run: Run) -> dict[str, TaskInstance]:
        """The task instances of a run by task id; instances of a mapped task as `task[0]`."""
        found = self.store.tasks.of_run(run)
        return {one.task_id if one.map_index < 0 else f"{one.task_id}[{one.map_index}]": one for one in found}

    def states(self, run: Run) -> dict[str, str]:
        return {name: str(one.state) for name, one in self.tasks(run).items()}

    def task_log(self, run: Run, task_id: str, attempt: int = 1) -> str:
        """What the attempt's log holds."""
        folder = self.settings.logging.base_log_folder
        file = folder / f"dag_id={run.dag_id}/run_id={run.run_id}/task_id={task_id}.attempt={attempt}.log"
        return file.read_text()

    def wait_for_states(self, run: Run, seconds: float = 30.0, **states: str) -> None:
        """Return once these tasks of a run are in these states at the same time: `wait="deferred"`."""

        def are_there() -> bool:
            return self.states(run).items() >= states.items()

        self.wait_until(are_there, seconds=seconds, what=f"the tasks of {run.run_id!r} did not become {states}")

    def triggers(self, run: Run | None = None) -> list[TriggerRecord]:
        """What tasks of this run, or of all, wait for now."""
        if run is None:
            return self.store.triggers.all(limit=None)
        return self.store.triggers.all(dag_id=run.dag_id, run_id=run.run_id, limit=None)

    def leases(self, kind: str) -> list[Lease]:
        """The programs of a kind that are at work now."""
        now = datetime.now(UTC)
        return [one for one in self.store.leases.all() if one.kind == kind and one.is_live(now)]

    def wait_until(self, look: Callable[[], Found], *, seconds: float, what: str) -> Found:
        """Look whenever something changes in the store, and now and then; the first true answer."""
        deadline = time.monotonic() + seconds
        with contextlib.closing(self.store.listen(SCHEDULER)) as listener:
            while not (found := look()):
                if time.monotonic() > deadline:
                    raise EngineTrouble(f"In {seconds:g} s {what}", self._tail())
                wait(listener, _LOOK_SECONDS)
        return found

    def stop(self, process: subprocess.Popen[bytes] | None = None, seconds: float = 20.0) -> int:
        """Stop a program cleanly; its exit status."""
        process = process or self._processes[-1]
        process.send_signal(signal.SIGTERM)
        return process.wait(seconds)

    def close(self) -> None:
        """End everything that is still there, processes first."""
        if self._closed:
            return
        self._closed = True
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.stop(process)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()
        self.store.close()

    def processes(self) -> Iterator[int]:
        """The ids of this engine's processes, known by the home in their environment."""
        mark = f"STANNEL_HOME={self.home}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        yield int(entry.name)

    def _tail(self) -> str:
        words = [self.output, self.settings.logging.base_log_folder / "stannel.log"]
        return "\n".join(file.read_text(errors="replace")[-2000:] for file in words if file.exists())
