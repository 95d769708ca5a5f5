"""A scheduler on a real store with a clock that the test moves, and a worker played by hand."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from stannel.model.dag import DagSpec, Retry, TaskSpec
from stannel.model.run import Attempt, Outcome, Run, RunType, TaskInstance
from stannel.model.states import TaskState
from stannel.scheduler.loop import Scheduler
from stannel.settings import load_settings
from stannel.store import Store
from stannel.store.dags import ParsedFile
from stannel.store.opening import open_store
from stannel.store.runs import NewRun


def task(task_id: str, *upstream: str, retries: int = 0, **fields: Any) -> TaskSpec:
    """A task that waits for these others."""
    return TaskSpec(task_id=task_id, upstream=upstream, retry=Retry(retries=retries, delay=60.0), **fields)


def _name(one: Attempt | TaskInstance) -> str:
    return one.task_id if one.map_index < 0 else f"{one.task_id}[{one.map_index}]"


class Stage:
    """What a test of the scheduler needs, in its words."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.now = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
        self.settings = load_settings(folder, {"STANNEL__DATABASE__SQLITE_SYNCHRONOUS": "normal", **settings})
        self.store: Store = open_store(self.settings)
        self.scheduler = Scheduler(self.store, self.settings, clock=lambda: self.now)
        self.renew_worker()

    def dag(self, *tasks: TaskSpec, dag_id: str = "d", **fields: Any) -> DagSpec:
        spec = DagSpec(dag_id=dag_id, fileloc=f"{dag_id}.py", tasks=tasks, **fields)
        self.store.dags.save_file(ParsedFile(path=spec.fileloc, fingerprint="", dags=(spec,)), now=self.now)
        return spec

    def break_file(self, path: str) -> None:
        """The file cannot be imported any more."""
        self.store.dags.save_file(ParsedFile(path=path, fingerprint="", error="a line is missing"), now=self.now)

    def forget_dag(self, dag_id: str) -> None:
        """Take a DAG out of the store behind the back of its verbs."""
        with self.store.transaction() as tx:
            tx.run(text("DELETE FROM dag WHERE dag_id = :dag_id"), dag_id=dag_id)

    def trigger(self, dag_id: str = "d", run_id: str | None = None, **fields: Any) -> Run:
        status = self.store.dags.get(dag_id)
        new = NewRun(run_id=run_id or f"run {self.now}", run_type=RunType.MANUAL, run_after=self.now, **fields)
        return self.store.runs.create(status.version, self.store.dags.spec(status.version), new, now=self.now)

    def tick(self, **later: float) -> float:
        """Let time pass, then let the scheduler do what it can; how long it would sleep."""
        self.now += timedelta(**later)
        return self.scheduler.tick()

    def claim(self, most: int = 100) -> dict[str, Attempt]:
        """What a worker would run now, by task id (and map index)."""
        return {_name(one): one for one in self.claim_all(most)}

    def claim_all(self, most: int = 100) -> list[Attempt]:
        return self.store.attempts.claim("worker", most=most, hostname="here", now=self.now)

    def end(self, attempt: Attempt, state: TaskState = TaskState.SUCCESS, **fields: Any) -> None:
        outcome = Outcome(state=state, end_date=self.now, **fields)
        assert self.store.attempts.finish([(attempt, outcome)]) == [True]

    def work(self, state: TaskState = TaskState.SUCCESS) -> list[str]:
        """Run everything that is queued to this end; what it was."""
        claimed = self.claim_all()
        for one in claimed:
            self.end(one, state)
        return sorted(map(_name, claimed))

    def run(self, run: Run) -> Run:
        return self.store.runs.get(run.dag_id, run.run_id)

    def states(self, run: Run) -> dict[str, str]:
        return {_name(one): str(one.state) for one in self.store.tasks.of_run(run)}

    def renew_worker(self, seconds: float = 3.0) -> None:
        self.store.leases.take("worker", "worker", hostname="here", pid=1, now=self.now, seconds=seconds)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    assert stage.store.upkeep.check() == []
    stage.store.close()
