"""Apache Airflow for benchmarks: in a venv of its own, driven by its command line, timed by its tables."""

import contextlib
import json
import os
import secrets
import shutil
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import harness
import psycopg
from support.postgres import running_postgres

VERSION = "3.3.2"
PACKAGE = "airflow.sdk"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stannel-bench"
RUN_SECONDS = 600

Query = Callable[[str], list[tuple[object, ...]]]


def installed() -> Path:
    """The folder of a venv with Apache Airflow, made when it is not there yet and kept for the next benchmark."""
    venv = CACHE / f"airflow-{VERSION}"
    if (venv / ".complete").exists():
        return venv
    harness.note(f"installing Apache Airflow {VERSION} into {venv}")
    shutil.rmtree(venv, ignore_errors=True)
    venv.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    install(venv / "bin/python", f"apache-airflow=={VERSION}", "psycopg2-binary", "asyncpg")
    (venv / ".complete").touch()
    return venv


def install(python: Path, *packages: str) -> None:
    """Install with compiled bytecode, as a package installer of either side would."""
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *packages]
    subprocess.run(command, check=True, env=harness.clean_environment())


@dataclass(frozen=True)
class Airflow:
    """A running `airflow standalone`."""

    pid: int
    query: Query
    airflow: Path
    env: dict[str, str]
    port: int

    def health(self) -> dict[str, str]:
        """What each component says of itself; empty while the API server does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v2/monitor/health", timeout=2) as answer:
                parts = json.load(answer)
        except OSError:
            return {}
        return {name: part["status"] for name, part in parts.items()}

    def is_ready(self) -> bool:
        health = self.health()
        return all(health.get(name) == "healthy" for name in ("metadatabase", "scheduler", "dag_processor"))

    def knows(self, dag_id: str) -> bool:
        return bool(self.ask(f"SELECT 1 FROM serialized_dag WHERE dag_id = '{dag_id}'"))

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        """The rows; none while the database is not there yet."""
        try:
            return self.query(sql)
        except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
            return []

    def trigger(self, dag_id: str) -> str:
        run_id = f"bench_{datetime.now(UTC):%H%M%S%f}"
        command = [self.airflow, "dags", "trigger", dag_id, "--run-id", run_id]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"airflow dags trigger failed:\n{done.stdout}{done.stderr}")
        return run_id

    def run(self, dag_id: str) -> harness.RunTimes:
        # A task that starts before the API server answers waits in ever longer steps, and may give up.
        harness.wait_for(self.is_ready, "Airflow's readiness", 180)
        harness.wait_for(lambda: self.knows(dag_id), f"Airflow's reading of {dag_id}", 120, every=0.5)
        run_id = self.trigger(dag_id)
        where = f"dag_id = '{dag_id}' AND run_id = '{run_id}'"
        finished = f"SELECT state, start_date FROM dag_run WHERE {where} AND state IN ('success', 'failed')"
        [(state, started)] = harness.wait_for(lambda: self.query(finished), f"Airflow's run of {dag_id}", RUN_SECONDS)
        if state != "success":
            raise RuntimeError(f"Airflow's run of {dag_id} ended as {state}")
        rows = self.query(f"SELECT start_date, end_date FROM task_instance WHERE {where}")
        return harness.RunTimes(_seconds(started), tuple((_seconds(start), _seconds(end)) for start, end in rows))

    def first_task_end(self, dag_id: str) -> float | None:
        rows = self.ask(f"SELECT end_date FROM task_instance WHERE dag_id = '{dag_id}' AND state = 'success'")
        return _seconds(rows[0][0]) if rows else None


def _seconds(moment: object) -> float:
    """A moment as PostgreSQL gives it (aware) or as SQLite keeps it (text in UTC)."""
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    assert isinstance(moment, datetime)
    return moment.timestamp()


def settings(home: Path, dags: Path, database: str, port: int, parallelism: int, idle_sleep: float) -> dict[str, str]:
    """Airflow at its best on one machine: what costs time and is not part of the workload is turned down."""
    sections = {
        "core": {
            "executor": "LocalExecutor",
            "dags_folder": str(dags),
            "load_examples": "False",
            "dags_are_paused_at_creation": "False",
            "parallelism": str(parallelism),
            "max_active_tasks_per_dag": "1000",
            "default_pool_task_slot_count": "1000",
            "execution_api_server_url": f"http://127.0.0.1:{port}/execution/",
            "simple_auth_manager_all_admins": "True",
        },
        "database": {"sql_alchemy_conn": database},
        "api_auth": {"jwt_secret": secrets.token_hex(64)},
        "api": {"port": str(port), "host": "127.0.0.1", "base_url": f"http://127.0.0.1:{port}"},
        "scheduler": {"scheduler_idle_sleep_time": str(idle_sleep), "max_tis_per_query": "0"},
        "dag_processor": {"refresh_interval": "5", "min_file_process_interval": "600", "print_stats_interval": "0"},
        "logging": {
            "logging_level": "WARNING",
            "worker_log_server_port": str(harness.free_port()),
            "trigger_log_server_port": str(harness.free_port()),
        },
    }
    flat = {
        f"AIRFLOW__{section.upper()}__{key.upper()}": value
        for section, keys in sections.items()
        for key, value in keys.items()
    }
    return harness.clean_environment(AIRFLOW_HOME=str(home), PYTHONPATH=str(home / harness.CODE), **flat)


@contextlib.contextmanager
def running(home: Path, dags: Path, *, store: str, parallelism: int, idle_sleep: float = 0.1) -> Iterator[Airflow]:
    """`airflow standalone` from an empty home; it makes its database itself.

    `idle_sleep` is how long its scheduler sleeps when it found nothing to do: short is fast, and costs when idle.
    """
    with (
        database(home, store) as (address, query),
        running_on(home, dags, address, query, parallelism, idle_sleep=idle_sleep) as engine,
    ):
        yield engine


@contextlib.contextmanager
def running_on(
    home: Path, dags: Path, address: str, query: Query, parallelism: int, *, idle_sleep: float = 0.1
) -> Iterator[Airflow]:
    """`airflow standalone` on a database that may hold something already."""
    port = harness.free_port()
    bin_folder = installed() / "bin"
    env = settings(home, dags, address, port, parallelism, idle_sleep)
    env["PATH"] = f"{bin_folder}{os.pathsep}{env['PATH']}"
    command = [str(bin_folder / "airflow"), "standalone"]
    with harness.background(command, env, home / "standalone.log") as process:
        yield Airflow(pid=process.pid, query=query, airflow=bin_folder / "airflow", env=env, port=port)


@contextlib.contextmanager
def triggerer(home: Path, engine: Airflow, capacity: int) -> "Iterator[subprocess.Popen[bytes]]":
    """Only `airflow triggerer`, on the database of an engine that is stopped."""
    # Otherwise it takes 50 triggers at a time.
    env = {**engine.env, "AIRFLOW__TRIGGERER__MAX_TRIGGER_TO_SELECT_PER_LOOP": str(capacity)}
    command = [str(engine.airflow), "triggerer", "--skip-serve-logs", "--capacity", str(capacity)]
    with harness.background(command, env, home / "triggerer.log") as process:
        yield process


@contextlib.contextmanager
def database(home: Path, store: str) -> Iterator[tuple[str, Query]]:
    """An empty database: its address, and how to ask it something."""
    if store == "sqlite":
        file = home / "airflow.db"
        yield f"sqlite:///{file}", lambda sql: _ask_sqlite(file, sql)
        return
    with running_postgres(durable=True) as server:
        url = server.url(server.create_database())
        with psycopg.connect(url, autocommit=True) as connection:
            yield url.replace("postgresql://", "postgresql+psycopg2://"), lambda sql: connection.execute(sql).fetchall()


def _ask_sqlite(file: Path, sql: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)) as connection:
        return connection.execute(sql).fetchall()
