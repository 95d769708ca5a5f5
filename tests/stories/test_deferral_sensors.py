"""Sensors and operators that come with the engine wait without a process, and end as their authors expect."""

import http.server
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from stories.deferral import engine_with, log_lines, xcom

from stannel.model.run import RunType
from stannel.store.entries import StoredConnection
from stannel.store.runs import NewRun
from stannel.testing import Engine

SENSORS = """
    import os
    from datetime import datetime, time, timedelta, timezone
    from airflow.sdk import DAG, task, PokeReturnValue
    from airflow.providers.http.sensors.http import HttpSensor
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
    from airflow.providers.standard.sensors.date_time import DateTimeSensor, DateTimeSensorAsync
    from airflow.providers.standard.sensors.external_task import ExternalTaskSensor
    from airflow.providers.standard.sensors.filesystem import FileSensor
    from airflow.providers.standard.sensors.time import TimeSensor
    from airflow.providers.standard.sensors.time_delta import TimeDeltaSensor, TimeDeltaSensorAsync
    from airflow.sensors.base import BaseSensorOperator
    from airflow.triggers.base import BaseTrigger, TriggerEvent

    FILES = os.environ["STORY_GATES"]
    soon = "{{ (dag_run.start_date + macros.timedelta(seconds=3)).isoformat() }}"

    with DAG("moments", schedule=None):
        TimeDeltaSensor(task_id="delta", delta=timedelta(seconds=3), deferrable=True)
        TimeDeltaSensorAsync(task_id="delta_async", delta=timedelta(seconds=3))
        DateTimeSensor(task_id="moment", target_time=soon, deferrable=True)
        DateTimeSensorAsync(task_id="moment_async", target_time=soon)
        DateTimeSensor(task_id="ends_itself", target_time=soon, deferrable=True, end_from_trigger=True)
        TimeSensor(task_id="past", target_time=time(0, 0, tzinfo=timezone.utc), deferrable=True)

    with DAG("far", schedule=None):
        TimeDeltaSensor(task_id="far", delta=timedelta(days=3), deferrable=True, timeout=timedelta(days=4))

    with DAG("files", schedule=None):
        common = {"deferrable": True, "poke_interval": 0.05}
        FileSensor(task_id="comes", filepath=FILES + "/{{ run_id }}/*.csv", **common)
        FileSensor(task_id="late", filepath=FILES + "/nowhere", timeout=0.3, retries=3, **common)
        FileSensor(task_id="soft", filepath=FILES + "/nowhere", timeout=0.3, soft_fail=True, **common)
        FileSensor(task_id="begins", filepath=FILES + "/begins.csv", start_from_trigger=True, **common)

    class Breaks(BaseTrigger):
        def serialize(self): return f"{__name__}.Breaks", {}
        async def run(self):
            raise ValueError("broken wait")
            yield

    class OnBroken(BaseSensorOperator):
        def execute(self, context): self.defer(trigger=Breaks(), method_name="end")
        def end(self, context, event): raise AssertionError("nothing was fired")

    with DAG("broken", schedule=None):
        OnBroken(task_id="fails")
        OnBroken(task_id="soft", soft_fail=True)
        OnBroken(task_id="never", never_fail=True)

    with DAG("other", schedule=None):
        @task.sensor(poke_interval=0.05)
        def wait_for_file(run_id=None) -> PokeReturnValue:
            return PokeReturnValue(os.path.exists(f"{FILES}/other-{run_id}"), xcom_value="there")
        @task
        def say(): return "said"
        wait_for_file() >> say()

    with DAG("follows", schedule=None):
        ExternalTaskSensor(
            task_id="task", external_dag_id="other", external_task_id="say", deferrable=True, poke_interval=600,
        )
        ExternalTaskSensor(task_id="run", external_dag_id="other", deferrable=True, poke_interval=600)
        TriggerDagRunOperator(
            task_id="starts", trigger_dag_id="other", trigger_run_id="{{ run_id }}-child", logical_date=None,
            wait_for_completion=True, deferrable=True, poke_interval=600,
        )

    with DAG("asks", schedule=None):
        HttpSensor(task_id="asks", http_conn_id="server", endpoint="/ready", deferrable=True, poke_interval=0.05)
"""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine_with(request, tmp_path_factory.mktemp("sensors"), {"sensors.py": SENSORS}) as engine:
        Path(engine.environ["STORY_GATES"]).mkdir()
        yield engine


def deferred(engine: Engine, dag_id: str, *task_ids: str, **options: Any) -> Any:
    """A run whose tasks have come to wait."""
    run = engine.trigger(dag_id, **options)
    wanted = dict.fromkeys(task_ids, "deferred")
    are_waiting = lambda: engine.states(run).items() >= wanted.items()  # noqa: E731
    engine.wait_until(are_waiting, seconds=30, what=f"{task_ids} of {dag_id} did not all begin to wait")
    return run


def test_a_wait_for_a_moment_is_a_row_that_nobody_runs(engine: Engine) -> None:
    run = deferred(engine, "far", "far")
    [row] = engine.triggers(run)
    assert row.due_at == run.run_after + timedelta(days=3)
    assert row.owner is None
    engine.store.triggers.cancel(row.id, now=datetime.now(UTC))
    assert engine.wait_for_run(run).state == "failed"


def test_a_moment_ends_a_wait_in_every_form_it_can_be_given(engine: Engine) -> None:
    run = engine.run("moments")
    assert run.state == "success", engine.states(run)
    found: dict[str, list[str]] = {}
    for one in engine.store.attempts.of_run(run):
        found.setdefault(one.task_id, []).append(str(one.state))
    twice = ["deferred", "success"]
    assert found == {
        "delta": twice,
        "delta_async": twice,
        "moment": twice,
        "moment_async": twice,
        "ends_itself": ["deferred"],
        "past": ["success"],
    }


def test_a_file_sensor_resumes_when_the_file_comes_and_else_times_out_for_good(engine: Engine) -> None:
    run = deferred(engine, "files", "comes", "begins")
    folder = Path(engine.environ["STORY_GATES"])
    (folder / run.run_id).mkdir()
    (folder / run.run_id / "a.csv").touch()
    (folder / "begins.csv").touch()
    engine.wait_for_run(run)
    assert engine.states(run) == {"comes": "success", "late": "failed", "soft": "skipped", "begins": "success"}
    # A sensor that timed out is not tried again, whatever its retries.
    assert engine.tasks(run)["late"].try_number == 1
    looks = [line for line in log_lines(engine, run, "comes") if line["event"].startswith("Looking for")]
    assert len(looks) == 1


def test_a_sensor_whose_trigger_breaks_fails_or_is_skipped_as_it_says(engine: Engine) -> None:
    run = engine.run("broken")
    assert engine.states(run) == {"fails": "failed", "soft": "skipped", "never": "skipped"}
    assert "broken wait" in engine.task_log(run, "fails")


def test_other_runs_and_tasks_are_waited_for_and_their_end_is_heard_at_once(engine: Engine) -> None:
    run = deferred(engine, "follows", "task", "run", "starts")
    status = engine.store.dags.get("other")
    new = NewRun(
        run_id="other", run_type=RunType.MANUAL, run_after=datetime.now(UTC), logical_date=run.logical_date, conf={}
    )
    spec = engine.store.dags.spec(status.version)
    other = engine.store.runs.create(status.version, spec, new, now=datetime.now(UTC))
    folder = Path(engine.environ["STORY_GATES"])
    (folder / f"other-{run.run_id}-child").touch()
    (folder / "other-other").touch()
    # They look every ten minutes; what they wait for is told to them.
    assert engine.wait_for_run(run, seconds=30).state == "success", engine.states(run)
    assert engine.store.runs.get(status.dag_id, other.run_id).state == "success"
    assert engine.store.runs.get(status.dag_id, xcom(engine, run, "starts", "trigger_run_id")).state == "success"


class Server(http.server.ThreadingHTTPServer):
    """Answers 404 until it is told to be ready."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.is_ready = False
        self.asked = threading.Semaphore(0)


class Answers(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.send_response(200 if self.server.is_ready else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.asked.release()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_server_is_asked_until_it_answers(engine: Engine, server: Server) -> None:
    connection = StoredConnection(conn_id="server", conn_type="http", host="127.0.0.1", port=server.server_port)
    engine.store.connections.save(connection)
    run = deferred(engine, "asks", "asks")
    # Once by the sensor itself, then by its trigger.
    assert all(server.asked.acquire(timeout=20) for _ in range(3))
    server.is_ready = True
    assert engine.wait_for_run(run).state == "success", engine.task_log(run, "asks")
