"""Tasks that wait, for benchmarks: the same operators and triggers for both engines, and stores full of deferred tasks.

One task of each kind is deferred by the engine itself; what it wrote is then copied as often as is wanted, and a
triggerer is started alone on the result. The copies are task instances like those of a mapped task.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import airflow_side
import harness
import stannel_side
from rows import Execute, copy, numbers, writing

MODULE = '''\
"""Written by a benchmark, for either engine."""

import asyncio
import functools
import time
from datetime import timedelta

from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent


@functools.cache
def common_moment(notes):
    with open(f"{notes}/moment") as file:
        return float(file.read())


class Alarm(BaseTrigger):
    """Fires at a moment, and says when it did. Without a moment of its own it takes the common one."""

    def __init__(self, moment, notes):
        super().__init__()
        self.moment, self.notes = moment, notes

    def serialize(self):
        return "bench_waits.Alarm", {"moment": self.moment, "notes": self.notes}

    async def run(self):
        with open(f"{self.notes}/started", "a") as file:
            file.write(".")
        moment = self.moment or common_moment(self.notes)
        await asyncio.sleep(max(moment - time.time(), 0))
        yield TriggerEvent(time.time())


class Wait(BaseOperator):
    def __init__(self, *, notes, after=None, only_moment=False, **kwargs):
        super().__init__(**kwargs)
        self.notes, self.after, self.only_moment = notes, after, only_moment

    def execute(self, context):
        moment = after = None
        if self.after is not None:
            after = context["dag_run"].start_date + timedelta(seconds=self.after)
            moment = after.timestamp()
        trigger = DateTimeTrigger(moment=after) if self.only_moment else Alarm(moment, self.notes)
        self.defer(trigger=trigger, method_name="resumed")

    def resumed(self, context, event=None):
        now = time.time()
        with open(f"{self.notes}/resumed", "a") as file:
            file.write(f"{event} {now}\\n")
'''
DAG_HEADER = "from airflow.sdk import DAG\nfrom bench_waits import Wait\n\nnotes = {notes!r}\n"
# Alarms are coroutines in both engines; a task of each kind shows an engine how its copies have to look.
EACH_KIND = """\
with DAG("waits", schedule=None):
    Wait(task_id="moment", only_moment=True, after=86400, notes=notes)
    Wait(task_id="coroutine", notes=notes)
"""
A_DAY = 86_400.0

Triggerer: TypeAlias = "contextlib.AbstractContextManager[subprocess.Popen[bytes]]"


def write(home: Path, dag: str, name: str) -> Path:
    """Write the module and a DAG file; the folder where tasks and triggers leave notes."""
    notes = home / "notes"
    for folder, file, text in (
        (home / harness.CODE, "bench_waits.py", MODULE),
        (home / "dags", f"{name}.py", DAG_HEADER.format(notes=str(notes)) + dag),
        (notes, "moment", str(time.time() + A_DAY)),
    ):
        folder.mkdir(exist_ok=True)
        (folder / file).write_text(text)
    return notes


@dataclass(frozen=True)
class Waiting:
    """A store whose task instances are all deferred, and how to start a triggerer on it."""

    home: Path
    notes: Path
    address: str
    engine: airflow_side.Airflow | stannel_side.Stannel

    @property
    def is_sqlite(self) -> bool:
        return self.address.startswith("sqlite")

    def keep_samples(self) -> None:
        """Set aside what the engine wrote, and leave nobody waiting."""
        with self._writing() as execute:
            for table in self.tables:
                execute(f'CREATE TABLE kept_{table} AS SELECT * FROM "{table}"')
        self.fill()

    def fill(self, *, moments: int = 0, coroutines: int = 0, moment: float | None = None) -> None:
        """Have this many tasks wait, instead of those that did: for a day, or until `moment`. Kinds are mixed."""
        moment = moment or time.time() + A_DAY
        (self.notes / "moment").write_text(str(moment))
        (self.notes / "started").write_text("")
        count = moments + coroutines
        every = count // coroutines if coroutines else count + 1
        is_coroutine = f"n.i % {every} = 0 AND n.i <= {every * coroutines}"
        with self._writing() as execute:
            for table in reversed(self.tables):
                execute(f'DELETE FROM "{table}"')
            some = f"CROSS JOIN {numbers(count, is_sqlite=self.is_sqlite)} AS n"
            self.write_copies(execute, "moment", f"{some} WHERE NOT ({is_coroutine})", moment)
            self.write_copies(execute, "coroutine", f"{some} WHERE {is_coroutine}", moment)

    def started(self) -> int:
        """How many coroutines have begun to wait."""
        return (self.notes / "started").stat().st_size

    def is_anyone_deferred(self) -> bool:
        return bool(self.engine.query("SELECT 1 FROM task_instance WHERE state = 'deferred' LIMIT 1"))

    def states(self) -> dict[str, int]:
        rows = self.engine.query("SELECT state, count(*) FROM task_instance GROUP BY state")
        return {str(state): int(str(count)) for state, count in rows}

    def _writing(self) -> "contextlib.AbstractContextManager[Execute]":
        return writing(self.address.replace("+psycopg2", ""))

    # --- what differs between the engines --------------------------------------------------------------------------

    tables: "tuple[str, ...]" = ()

    def write_copies(self, execute: Execute, task: str, rest: str, moment: float) -> None:
        """Insert a copy of what belongs to the sample for each number `n.i` of the clauses `rest`."""
        raise NotImplementedError

    def triggerer(self, capacity: int) -> Triggerer:
        """Run a triggerer alone."""
        raise NotImplementedError

    def is_triggerer_at_work(self) -> bool:
        """Whether a triggerer has announced itself."""
        raise NotImplementedError


@dataclass(frozen=True)
class StannelWaiting(Waiting):
    engine: stannel_side.Stannel
    tables: "tuple[str, ...]" = ("task_instance", "attempt", "trigger")

    def write_copies(self, execute: Execute, task: str, rest: str, moment: float) -> None:
        attempt, due = {"attempt_id": "'attempt-' || n.i"}, {}
        if task == "moment":
            due = {"due_at": str(int(moment * 1_000_000))}
        each = {"map_index": "n.i", **attempt}
        of_task = f"AND k.task_id = '{task}'"
        sample = f"(SELECT pk FROM kept_task_instance WHERE task_id = '{task}')"
        copy(execute, "task_instance", "k", {"pk": "n.i", **each}, f"kept_task_instance AS k {rest} {of_task}")
        copy(
            execute, "attempt", "k", {"ti_pk": "n.i", **attempt},
            f"kept_attempt AS k {rest} AND k.ti_pk = {sample}",
        )  # fmt: skip
        copy(
            execute, "trigger", "k",
            {"pk": "n.i", "ti_pk": "n.i", **each, **due, "owner": "NULL", "claimed_at": "NULL"},
            f"kept_trigger AS k {rest} {of_task}",
        )  # fmt: skip

    def have_one_due(self) -> None:
        """The moment of one of those who wait has come."""
        with self._writing() as execute:
            execute(f'UPDATE "trigger" SET due_at = {int(time.time() * 1_000_000)} WHERE pk = 1')

    def is_one_resumed(self) -> bool:
        return bool(self.engine.query("SELECT 1 FROM task_instance WHERE pk = 1 AND state = 'scheduled'"))

    def triggerer(self, capacity: int) -> Triggerer:
        return stannel_side.triggerer(self.home, self.engine, capacity)

    def is_triggerer_at_work(self) -> bool:
        return bool(self.engine.query("SELECT 1 FROM lease WHERE kind = 'triggerer'"))


@dataclass(frozen=True)
class AirflowWaiting(Waiting):
    engine: airflow_side.Airflow
    tables: "tuple[str, ...]" = ("trigger", "task_instance")

    def write_copies(self, execute: Execute, task: str, rest: str, moment: float) -> None:
        sample = f"k.id = (SELECT trigger_id FROM kept_task_instance WHERE task_id = '{task}')"
        [(text,)] = execute(f"SELECT kwargs FROM kept_trigger AS k WHERE {sample}")
        arguments = json.loads(str(text))
        if task == "moment":
            arguments["moment"]["__data__"]["timestamp"] = moment
        kwargs = "'{}'".format(json.dumps(arguments).replace("'", "''"))
        copy(
            execute, "trigger", "k", {"id": "n.i", "triggerer_id": "NULL", "kwargs": kwargs},
            f"kept_trigger AS k {rest} AND {sample}",
        )  # fmt: skip
        unique = "lower(hex(randomblob(16)))" if self.is_sqlite else "gen_random_uuid()"
        copy(
            execute, "task_instance", "k", {"id": unique, "map_index": "n.i", "trigger_id": "n.i"},
            f"kept_task_instance AS k {rest} AND k.task_id = '{task}'",
        )  # fmt: skip

    def triggerer(self, capacity: int) -> Triggerer:
        return airflow_side.triggerer(self.home, self.engine, capacity)

    def is_triggerer_at_work(self) -> bool:
        at_work = "job_type = 'TriggererJob' AND state = 'running'"
        return bool(self.engine.query(f"SELECT 1 FROM job WHERE {at_work}"))


@contextlib.contextmanager
def stannel(options: harness.Options) -> Iterator[StannelWaiting]:
    """A store of Stannel with nobody waiting yet; its engine is stopped."""
    with harness.empty_home() as home, stannel_side.database(home, options.store) as (address, query):
        notes = write(home, EACH_KIND, "waits")
        with stannel_side.running_on(home, home / "dags", address, query, options.parallelism) as engine:
            harness.wait_for(lambda: engine.knows("waits"), "Stannel's reading of waits", 30)
            _defer_samples(engine)
        store = StannelWaiting(home=home, notes=notes, address=address, engine=engine)
        store.keep_samples()
        yield store


@contextlib.contextmanager
def airflow(options: harness.Options) -> Iterator[AirflowWaiting]:
    """The same of Apache Airflow."""
    with harness.empty_home() as home, airflow_side.database(home, options.store) as (address, query):
        notes = write(home, EACH_KIND, "waits")
        with airflow_side.running_on(home, home / "dags", address, query, options.parallelism) as engine:
            harness.wait_for(engine.is_ready, "Airflow's readiness", 180)
            harness.wait_for(lambda: engine.knows("waits"), "Airflow's reading of waits", 120)
            _defer_samples(engine)
        store = AirflowWaiting(home=home, notes=notes, address=address, engine=engine)
        store.keep_samples()
        yield store


def _defer_samples(engine: airflow_side.Airflow | stannel_side.Stannel) -> None:
    engine.trigger("waits")
    deferred = "SELECT count(*) FROM task_instance WHERE state = 'deferred'"
    harness.wait_for(lambda: engine.query(deferred) == [(2,)], "the deferral of two tasks", 60)
