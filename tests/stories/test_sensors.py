"""Sensors in a running engine: what they hold while they wait, and how the wait ends."""

import json
from collections.abc import Iterator

import pytest

from stannel.model.run import Run
from stannel.testing import Engine

DAGS = """
    import os
    from stannel.sdk import DAG, BaseSensorOperator, PokeReturnValue, task
    from stannel.sdk.operators import TriggerDagRunOperator
    from stannel.sdk.sensors import ExternalTaskSensor

    class Arrival(BaseSensorOperator):
        template_fields = ("file",)

        def __init__(self, *, file, **kwargs):
            super().__init__(**kwargs)
            self.file = file

        def poke(self, context):
            ti = context["ti"]
            looks = (ti.xcom_pull(key="looks") or 0) + 1
            ti.xcom_push(key="looks", value=looks)
            print("look", looks, "of try", ti.try_number)
            return PokeReturnValue(looks > 1 and os.path.exists(self.file), {"looks": looks, "try": ti.try_number})

    # Whoever holds the pool's only slot keeps the other from running.
    with DAG("shares_a_slot", schedule=None):
        Arrival(task_id="waits", file="{{ params.file }}", params={"file": ""}, mode="reschedule", poke_interval=0.05,
                pool="single", priority_weight=10)
        @task(pool="single")
        def opens(params=None): open(params["file"], "w").close()
        opens()

    with DAG("never_comes", schedule=None, default_args={"retries": 2, "timeout": 0.6, "poke_interval": 0.1}):
        Arrival(task_id="rescheduled", file="/nowhere/at/all", mode="reschedule")
        Arrival(task_id="poked", file="/nowhere/at/all")
        Arrival(task_id="soft", file="/nowhere/at/all", mode="reschedule", soft_fail=True, exponential_backoff=True)

    with DAG("other", schedule=None):
        @task
        def each(number): return number
        each.expand(number=[1, 2])

    with DAG("asks_another", schedule=None):
        ask = {"external_dag_id": "other", "poke_interval": 0.05, "check_existence": True}
        ExternalTaskSensor(task_id="tasks", external_task_id="each", mode="reschedule", **ask)
        ExternalTaskSensor(task_id="whole_run", **ask)
        ExternalTaskSensor(task_id="no_such_task", external_task_id="nothing", **ask)
        TriggerDagRunOperator(task_id="starts", trigger_dag_id="other", logical_date="{{ ts }}", conf={"a": 1},
                              wait_for_completion=True, poke_interval=0.05)
"""

AIRFLOW = """
    from airflow.sdk import DAG, PokeReturnValue, task
    from airflow.exceptions import AirflowSensorTimeout
    from airflow.sensors.base import BaseSensorOperator
    from airflow.providers.standard.sensors.bash import BashSensor
    from airflow.providers.standard.sensors.python import PythonSensor

    with DAG("from_airflow", schedule=None):
        @task.sensor(poke_interval=0.05, timeout=60, mode="reschedule")
        def second_look(ti=None):
            looks = ti.task_reschedule_count + 1
            return PokeReturnValue(is_done=looks == 2, xcom_value=looks)
        second_look() >> BashSensor(task_id="shell", bash_command="true") >> PythonSensor(
            task_id="python", python_callable=lambda: True
        )
"""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("sensors")
    database = None
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        database = server.url(server.create_database())
    with Engine(folder, database=database) as engine:
        engine.store.pools.save("single", 1)
        engine.add_dag_file("sensing.py", DAGS)
        engine.add_dag_file("from_airflow.py", AIRFLOW)
        engine.start()
        yield engine


def returned(engine: Engine, run: Run, task_id: str) -> object:
    found = engine.store.xcoms.get(run.pk, task_id, -1, "return_value")
    return None if found is None else json.loads(found)


def attempts(engine: Engine, run: Run, task_id: str) -> list[tuple[int, str]]:
    found = engine.store.attempts.of_run(run)
    return [(one.try_number, str(one.state)) for one in found if one.task_id == task_id]


def test_a_rescheduled_sensor_gives_up_its_slot_between_looks_and_goes_on_in_the_same_try(engine: Engine) -> None:
    file = engine.home / "arrived"
    run = engine.run("shares_a_slot", conf={"file": str(file)})
    assert engine.states(run) == {"waits": "success", "opens": "success"}
    tasks = engine.tasks(run)
    sensor, opener = tasks["waits"], tasks["opens"]
    assert None not in (sensor.start_date, opener.start_date, sensor.end_date)
    assert sensor.start_date < opener.start_date < sensor.end_date  # type: ignore[operator]

    *looks, last = attempts(engine, run, "waits")
    assert {*looks} == {(1, "rescheduled")}
    assert last == (1, "success")
    # Each look read what the one before had left.
    assert returned(engine, run, "waits") == {"looks": len(looks) + 1, "try": 1}
    assert f"look {len(looks) + 1} of try 1" in engine.task_log(run, "waits")


def test_a_timeout_spans_reschedules_and_is_not_retried(engine: Engine) -> None:
    run = engine.run("never_comes")
    assert engine.states(run) == {"rescheduled": "failed", "poked": "failed", "soft": "skipped"}
    assert attempts(engine, run, "poked") == [(1, "failed")]
    *looks, last = attempts(engine, run, "rescheduled")
    assert last == (1, "failed")
    assert {*looks} == {(1, "rescheduled")}
    *looks, last = attempts(engine, run, "soft")
    assert last == (1, "skipped")
    for task_id in ("rescheduled", "poked", "soft"):
        assert "Sensor has timed out" in engine.task_log(run, task_id)
        one = engine.tasks(run)[task_id]
        assert one.start_date is not None
        assert one.end_date is not None
        assert (one.end_date - one.start_date).total_seconds() >= 0.6


def test_runs_and_tasks_of_another_dag_are_started_and_waited_for(engine: Engine) -> None:
    run = engine.run("asks_another")
    assert engine.states(run) == {
        "starts": "success",
        "tasks": "success",
        "whole_run": "success",
        "no_such_task": "failed",
    }
    assert "has no task 'nothing' to wait for" in engine.task_log(run, "no_such_task")
    found = engine.store.xcoms.get(run.pk, "starts", -1, "trigger_run_id")
    assert found is not None
    started = engine.store.runs.get("other", json.loads(found))
    assert (started.run_type, started.logical_date, started.conf) == ("operator_triggered", run.logical_date, {"a": 1})


def test_sensors_of_a_file_written_for_airflow_run(engine: Engine) -> None:
    run = engine.run("from_airflow")
    assert engine.states(run) == {"second_look": "success", "shell": "success", "python": "success"}
    assert attempts(engine, run, "second_look") == [(1, "rescheduled"), (1, "success")]
    assert returned(engine, run, "second_look") == 2
