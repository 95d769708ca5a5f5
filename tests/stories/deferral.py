"""What stories of deferral share: triggers as authors write them, ways to look at waits, and ways to do harm."""

import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from stannel.model.run import Run
from stannel.sdk import serde
from stannel.store import Store
from stannel.testing import Engine

# A module in the DAG folder: waits that end when the test says so, by a file of the run's own.
GATES = """
    import asyncio, os
    from airflow.triggers.base import BaseTrigger, TriggerEvent

    class Gate(BaseTrigger):
        def __init__(self, name, run_id=None):
            super().__init__()
            self.name, self.run_id = name, run_id

        def serialize(self):
            return f"{type(self).__module__}.{type(self).__qualname__}", {"name": self.name, "run_id": self.run_id}

        async def opened(self):
            path = os.path.join(os.environ["STORY_GATES"], self.run_id or self.task_instance.run_id, self.name)
            while not os.path.exists(path):
                await asyncio.sleep(0.02)
            with open(path) as file:
                return file.read()

        async def run(self):
            yield TriggerEvent(await self.opened())
"""

# Waits for work that goes on elsewhere, and would have to be stopped if nobody wanted it any more.
JOBS = """
    import asyncio, os
    from datetime import timedelta
    from stannel.sdk import DAG, BaseOperator
    from stannel.triggers.base import StartTriggerArgs, TriggerEvent
    from gates import Gate

    def note(*words):
        with open(os.environ["STORY_NOTES"], "a") as file:
            print(*words, file=file)

    class JobTrigger(Gate):
        async def run(self):
            note("run", self.task_instance.run_id)
            yield TriggerEvent(await self.opened())

        async def on_kill(self):
            note("killing", self.task_instance.run_id)
            # Long enough to be interrupted, if anybody interrupts it.
            await asyncio.sleep(1.5)
            note("killed", self.task_instance.run_id)

        async def cleanup(self):
            note("cleanup", self.task_instance.run_id)

    class Job(BaseOperator):
        def execute(self, context):
            self.defer(trigger=JobTrigger("go"), method_name="end", timeout=context["dag_run"].conf.get("timeout"))

        def end(self, context, event): return event

    class JobFromTrigger(Job):
        start_from_trigger = True
        start_trigger_args = StartTriggerArgs(f"{__name__}.JobTrigger", "end", {"name": "go"})

        def __init__(self, number=0, **kwargs):
            super().__init__(**kwargs)

    with DAG("jobs", schedule=None):
        Job(task_id="job")
    with DAG("many_jobs", schedule=None):
        JobFromTrigger.partial(task_id="job").expand(number=list(range(200)))
"""

_HOST = b"stannel.triggerer.host"
_FAST = {"STANNEL__CORE__KILLED_TASK_CLEANUP_TIME": "1", "STANNEL__TRIGGERER__CANCEL_GRACE": "1"}


@contextlib.contextmanager
def engine_with(
    request: pytest.FixtureRequest, folder: Path, files: Mapping[str, str], settings: Mapping[str, str] | None = None
) -> Iterator[Engine]:
    """A started engine on the store that the fixture's parameter names, with these files in its DAG folder."""
    database = None
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        database = server.url(server.create_database())
    with Engine(folder, database=database, settings={**_FAST, **(settings or {})}) as engine:
        engine.environ |= {"STORY_GATES": str(folder / "gates"), "STORY_NOTES": str(folder / "notes")}
        for name, source in {"gates.py": GATES, **files}.items():
            engine.add_dag_file(name, source)
        engine.start()
        yield engine


def open_gate(engine: Engine, run: Run, name: str, content: str = "") -> None:
    """End the wait for this gate."""
    path = Path(engine.environ["STORY_GATES"], run.run_id, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{name}")
    half.write_text(content)
    half.rename(path)


def notes(engine: Engine) -> list[str]:
    """What the authors' code of the story wrote down."""
    path = Path(engine.environ["STORY_NOTES"])
    return path.read_text().splitlines() if path.exists() else []


_RESUMPTIONS = "CREATE TABLE resumptions (ti_pk BIGINT NOT NULL, event TEXT)"
_SQLITE_NOTE = """CREATE TRIGGER note_resumption AFTER UPDATE OF state ON task_instance
WHEN old.state = 'deferred' AND new.state <> 'deferred'
BEGIN INSERT INTO resumptions VALUES (new.pk, new.event); END"""
_POSTGRES_FUNCTION = """CREATE FUNCTION note_resumption() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO resumptions VALUES (new.pk, new.event); RETURN NULL; END $$"""
_POSTGRES_NOTE = """CREATE TRIGGER note_resumption AFTER UPDATE OF state ON task_instance FOR EACH ROW
WHEN (old.state = 'deferred' AND new.state <> 'deferred') EXECUTE FUNCTION note_resumption()"""


def note_resumptions(store: Store) -> None:
    """Have the database itself write down every end of a wait, whoever brings it about."""
    with store.transaction() as tx:
        tx.change(text(_RESUMPTIONS))
        if tx.is_sqlite:
            tx.change(text(_SQLITE_NOTE))
        else:
            tx.change(text(_POSTGRES_FUNCTION))
            tx.change(text(_POSTGRES_NOTE))


def resumptions(store: Store) -> dict[int, list[Any]]:
    """The events that ended waits, by task instance."""
    found: dict[int, list[Any]] = {}
    for pk, event in rows(store, "SELECT ti_pk, event FROM resumptions"):
        found.setdefault(pk, []).append(None if event is None else json.loads(event))
    return found


def rows(store: Store, statement: str) -> list[Any]:
    with store.read() as tx:
        return list(tx.all(text(statement)))


def counts(store: Store, run: Run) -> Counter[str]:
    """How many instances of a run are in which state."""
    return Counter(
        dict(rows(store, f"SELECT state, count(*) FROM task_instance WHERE run_pk = {run.pk} GROUP BY state"))
    )


def xcom(engine: Engine, run: Run, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
    found = engine.store.xcoms.get(run.pk, task_id, map_index, key)
    return None if found is None else serde.decode(json.loads(found))


def log_lines(engine: Engine, run: Run, task_id: str, attempt: int = 1) -> list[dict[str, Any]]:
    """The lines of a task's log, worker's and triggers'; a line that is still being written is left out."""
    lines = []
    with contextlib.suppress(FileNotFoundError):
        for line in engine.task_log(run, task_id, attempt).splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                lines.append(json.loads(line))
    return lines


def wait_for_log(engine: Engine, run: Run, task_id: str, words: str, seconds: float = 30.0) -> dict[str, Any]:
    """The first line of a task's log with these words."""

    def look() -> dict[str, Any] | None:
        return next((line for line in log_lines(engine, run, task_id) if words in json.dumps(line)), None)

    found = engine.wait_until(look, seconds=seconds, what=f"the log of {task_id!r} did not say {words!r}")
    assert found is not None
    return found


def hosts(engine: Engine) -> dict[int, int]:
    """The processes that run triggers, and the triggerer each belongs to."""
    found = {}
    for pid in engine.processes():
        with contextlib.suppress(OSError):
            if _HOST in Path(f"/proc/{pid}/cmdline").read_bytes():
                found[pid] = _parent(pid)
    return found


def children_of(parent: int) -> list[int]:
    """The processes that this one started and that still live."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and _parent(int(entry.name)) == parent:
                found.append(int(entry.name))
    return found


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def send(pid: int, number: signal.Signals) -> bool:
    """False: there is no such process any more."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """The process stands still, and then goes on as if nothing had happened."""
    send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        send(pid, signal.SIGCONT)
