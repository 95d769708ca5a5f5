"""Triggerers at work on a real store, with hosts that run triggers written into the DAG folder."""

import json
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from store.conftest import postgres_store, prepared_postgres, sqlite_address, sqlite_store, store
from store.world import World, outcome

from stannel.model.run import Attempt
from stannel.model.states import TaskState
from stannel.model.trigger import Deferral
from stannel.settings import Settings, load_settings
from stannel.store.database import SCHEDULER, TRIGGERER
from stannel.store.signals import wait
from stannel.triggerer.loop import Triggerer

__all__ = ["postgres_store", "prepared_postgres", "sqlite_address", "sqlite_store", "store"]

PATIENCE = 30.0

# Every test's triggers: what each does is its name.
TRIGGERS = """
import asyncio, os, time
from pathlib import Path
from stannel.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent

class Base(BaseTrigger):
    def __init__(self, **kwargs):
        super().__init__()
        self.kwargs = kwargs
    def serialize(self):
        return f"trigs.{type(self).__name__}", self.kwargs
    def mark(self, text):
        with open(self.kwargs["marks"], "a") as file:
            file.write(text + "\\n")

class Now(Base):
    async def run(self):
        self.log.info("about to fire")
        yield TriggerEvent(self.kwargs.get("payload"))

class WhenFile(Base):
    async def run(self):
        if "marks" in self.kwargs:
            self.mark(f"run {os.getpid()}")
        while not Path(self.kwargs["path"]).exists():
            await asyncio.sleep(0.02)
        yield TriggerEvent(self.kwargs.get("payload", "seen"))
    async def cleanup(self):
        if "marks" in self.kwargs:
            self.mark("cleanup")
    async def on_kill(self):
        if "marks" in self.kwargs:
            self.mark("on_kill")

class Raises(Base):
    async def run(self):
        raise ValueError("no such thing")
        yield

class Blocks(WhenFile):
    async def run(self):
        self.mark(f"run {os.getpid()}")
        while not Path(self.kwargs["path"]).exists():
            time.sleep(0.05)
        yield TriggerEvent("at last")

class HoldsTheGil(Base):
    async def run(self):
        self.mark(f"run {os.getpid()}")
        if len(Path(self.kwargs["marks"]).read_text().splitlines()) < 2:
            import ctypes
            ctypes.PyDLL(None).sleep(600)
        yield TriggerEvent("free")

class Exits(Base):
    async def run(self):
        self.mark(f"run {os.getpid()}")
        os._exit(7)
        yield
"""


class Rig:
    """A store, a DAG folder, and triggerers that a test starts and stops."""

    def __init__(self, world: World, folder: Path, **settings: str) -> None:
        self.world, self.store, self.folder = world, world.store, folder
        quick = {
            "STANNEL__TRIGGERER__JOB_HEARTBEAT_SEC": "0.2",
            "STANNEL__TRIGGERER__CANCEL_GRACE": "1",
            "STANNEL__TRIGGERER__BLOCKED_QUARANTINE_THRESHOLD": "0.5",
            "STANNEL__TRIGGERER__RUNNER_HEALTH_CHECK_THRESHOLD": "1.5",
        }
        self.settings: Settings = load_settings(folder, {**quick, **settings})
        self.settings.core.dags_folder.mkdir(parents=True, exist_ok=True)
        self.module("trigs", TRIGGERS)
        self.marks = folder / "marks"
        self.file = folder / "flag"
        self._running: list[tuple[Triggerer, threading.Thread]] = []

    def module(self, name: str, text: str) -> None:
        """A file of trigger code; replaced at once, as editors do."""
        path = self.settings.core.dags_folder / f"{name}.py"
        path.with_suffix(".new").write_text(textwrap.dedent(text))
        path.with_suffix(".new").rename(path)

    def defer(self, kind: str, *tasks: str, queue: str | None = None, **kwargs: Any) -> list[Attempt]:
        """Tasks of a fresh run that wait for a trigger each."""
        attempts = self.world.running(*(tasks or ("a",)))
        while len(attempts) < len(tasks):
            self.world.queue()
            attempts += self.world.claim(most=1000)
        deferral = Deferral(classpath=_classpath(kind), kwargs=kwargs, queue=queue, method="resume")
        ends = [(attempt, outcome(TaskState.DEFERRED, deferral=deferral)) for attempt in attempts]
        assert all(self.store.attempts.finish(ends))
        return attempts

    def defer_attempt(self, attempt: Attempt, kind: str, *, queue: str | None = None, **kwargs: Any) -> None:
        assert self.world.defer(attempt, _classpath(kind), kwargs=kwargs, queue=queue)

    def start(self, **options: Any) -> Triggerer:
        triggerer = Triggerer(self.store, self.settings, **options)
        thread = threading.Thread(target=triggerer.run, name="triggerer", daemon=True)
        thread.start()
        self._running.append((triggerer, thread))
        return triggerer

    def stop(self, triggerer: Triggerer | None = None) -> None:
        """Stop this one, or all, and see that it ends."""
        for one, thread in list(self._running):
            if triggerer in (None, one):
                one.stop()
                thread.join(PATIENCE)
                assert not thread.is_alive()
                self._running.remove((one, thread))

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait for something to be so, looking whenever the store changes and now and then."""
        listener = self.store.listen(SCHEDULER, TRIGGERER)
        deadline = time.monotonic() + PATIENCE
        try:
            while not (found := condition()):
                assert time.monotonic() < deadline, "it did not come to pass"
                wait(listener, 0.05)
            return found
        finally:
            listener.close()

    def until_states(self, expected: str) -> None:
        """Wait until every task of the run is in this state."""
        self.until(lambda: set(self.world.states().values()) == {expected})

    def until_marked(self, *expected: str) -> list[str]:
        return self.until(lambda: lines if set(expected) <= set(lines := self.marked()) else None)

    def marked(self) -> list[str]:
        """What triggers noted down, each line's first word."""
        return [line.split()[0] for line in self.mark_lines()]

    def mark_lines(self) -> list[str]:
        return self.marks.read_text().splitlines() if self.marks.exists() else []

    def resumed(self) -> dict[str, Any]:
        """The arguments with which each task goes on; method and all."""
        while self.world.queue():
            pass
        return {one.task_id: (one.next_method, one.next_kwargs) for one in self.world.claim(most=10_000)}

    def log(self, task_id: str = "a") -> list[dict[str, Any]]:
        path = self.settings.logging.base_log_folder / f"dag_id=d/run_id=r/task_id={task_id}.attempt=1.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def said(self, task_id: str = "a") -> str:
        return "\n".join(line["event"] for line in self.log(task_id))


def _classpath(kind: str) -> str:
    return kind if "." in kind else f"trigs.{kind}"


@pytest.fixture
def rig(store: Any, tmp_path: Path) -> Iterator[Rig]:
    """A rig on each kind of database."""
    world = World(store)
    rig = Rig(world, tmp_path)
    yield rig
    rig.stop()
    assert world.forbidden_moves() == []


@pytest.fixture
def one_rig(sqlite_store: Any, tmp_path: Path) -> Iterator[Rig]:
    """A rig on SQLite, where the kind of database makes no difference."""
    world = World(sqlite_store)
    rig = Rig(world, tmp_path)
    yield rig
    rig.stop()
    assert world.forbidden_moves() == []
