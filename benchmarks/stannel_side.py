"""Stannel for benchmarks: `stannel standalone` in an empty home, driven by its command line, timed by its tables."""

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import harness
import psycopg
from support.postgres import running_postgres

PACKAGE = "stannel.sdk"
RUN_SECONDS = 120

Query = Callable[[str], list[tuple[object, ...]]]


@dataclass(frozen=True)
class Stannel:
    """A running `stannel standalone`."""

    process: "subprocess.Popen[bytes]"
    query: Query
    log: Path
    stannel: Path
    env: dict[str, str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_ready(self) -> bool:
        """It has said that it is ready: every part of it is at work."""
        return self.log.stat().st_size > 0 and self.is_running()

    def is_running(self) -> bool:
        """True; an engine that has ended on its own is an error, which nobody should wait out."""
        if self.process.poll() is not None:
            raise RuntimeError(f"stannel standalone ended with code {self.process.returncode}")
        return True

    def knows(self, dag_id: str) -> bool:
        return bool(self.ask(f"SELECT 1 FROM dag WHERE dag_id = '{dag_id}' AND is_active = 1"))

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        """The rows; none while the database is not there yet."""
        self.is_running()
        try:
            return self.query(sql)
        except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
            return []

    def trigger(self, dag_id: str) -> str:
        run_id = f"bench_{datetime.now(UTC):%H%M%S%f}"
        command = [self.stannel, "dags", "trigger", dag_id, "--run-id", run_id]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"stannel dags trigger failed:\n{done.stdout}{done.stderr}")
        return run_id

    def run(self, dag_id: str) -> harness.RunTimes:
        harness.wait_for(lambda: self.knows(dag_id), f"Stannel's reading of {dag_id}", 30)
        run_id = self.trigger(dag_id)
        finished = f"""
            SELECT pk, state, started_at FROM dag_run
            WHERE dag_id = '{dag_id}' AND run_id = '{run_id}' AND state IN ('success', 'failed')"""
        found = harness.wait_for(lambda: self.query(finished), f"Stannel's run of {dag_id}", RUN_SECONDS)
        [(pk, state, started)] = found
        if state != "success":
            reasons = self.query(f"SELECT DISTINCT reason FROM attempt WHERE run_pk = {pk} AND state <> 'success'")
            raise RuntimeError(f"Stannel's run of {dag_id} ended as {state}: {reasons}")
        rows = self.query(f"SELECT started_at, ended_at FROM task_instance WHERE run_pk = {pk}")
        return harness.RunTimes(_seconds(started), tuple((_seconds(start), _seconds(end)) for start, end in rows))

    def first_task_end(self, dag_id: str) -> float | None:
        rows = self.ask(f"SELECT ended_at FROM task_instance WHERE dag_id = '{dag_id}' AND state = 'success'")
        return _seconds(rows[0][0]) if rows else None


def _seconds(microseconds: object) -> float:
    assert isinstance(microseconds, int)
    return microseconds / 1_000_000


@contextlib.contextmanager
def running(home: Path, dags: Path, *, store: str, parallelism: int) -> Iterator[Stannel]:
    """`stannel standalone` from an empty home and, on PostgreSQL, an empty database."""
    with database(home, store) as (address, query), running_on(home, dags, address, query, parallelism) as engine:
        yield engine


@contextlib.contextmanager
def running_on(home: Path, dags: Path, address: str, query: Query, parallelism: int) -> Iterator[Stannel]:
    """`stannel standalone` on a database that may hold something already."""
    program = Path(sys.executable).with_name("stannel")
    env = harness.clean_environment(
        STANNEL_HOME=str(home),
        PYTHONPATH=str(home / harness.CODE),
        STANNEL__CORE__DAGS_FOLDER=str(dags),
        STANNEL__CORE__PARALLELISM=str(parallelism),
        STANNEL__CORE__DEFAULT_POOL_TASK_SLOT_COUNT="1000",
        STANNEL__DATABASE__SQL_ALCHEMY_CONN=address,
    )
    env["PATH"] = f"{program.parent}{os.pathsep}{env['PATH']}"
    log = home / "standalone.log"
    with harness.background([str(program), "standalone", "--quiet"], env, log) as process:
        yield Stannel(process=process, query=query, log=log, stannel=program, env=env)


@contextlib.contextmanager
def triggerer(home: Path, engine: Stannel, capacity: int) -> "Iterator[subprocess.Popen[bytes]]":
    """Only `stannel triggerer`, on the database of an engine that is stopped."""
    command = [str(engine.stannel), "triggerer", "--capacity", str(capacity)]
    with harness.background(command, engine.env, home / "triggerer.log") as process:
        yield process


@contextlib.contextmanager
def database(home: Path, store: str) -> Iterator[tuple[str, Query]]:
    """An empty database: its address, and how to ask it something."""
    if store == "sqlite":
        file = home / "stannel.db"
        yield f"sqlite:///{file}", lambda sql: _ask_sqlite(file, sql)
        return
    with running_postgres(durable=True) as server:
        url = server.url(server.create_database())
        with psycopg.connect(url, autocommit=True) as connection:
            yield url, lambda sql: connection.execute(sql).fetchall()


def _ask_sqlite(file: Path, sql: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)) as connection:
        return connection.execute(sql).fetchall()
