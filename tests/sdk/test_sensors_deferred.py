"""Sensors that leave their wait to a trigger."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from support.memory_channel import MOMENT, MemoryChannel, failed, resumed, run, run_beside

from stannel.model.states import RunState
from stannel.protocol.replies import ConnectionResult, DagRunStateResult, DRCount, OKResponse
from stannel.protocol.requests import (
    DeferTask,
    GetDagRunState,
    GetDRCount,
    RetryTask,
    SucceedTask,
    TaskState,
    TriggerDagRun,
)
from stannel.sdk import DAG, BaseSensorOperator, PokeReturnValue, serde, timezone
from stannel.sdk.compile import compile_dag
from stannel.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, DownstreamTasksSkipped
from stannel.sdk.operators import TriggerDagRunOperator
from stannel.sdk.sensors import (
    BashSensor,
    DateTimeSensor,
    DateTimeSensorAsync,
    ExternalTaskSensor,
    FileSensor,
    HttpSensor,
    TimeDeltaSensor,
    TimeDeltaSensorAsync,
    TimeSensor,
    TimeSensorAsync,
    WaitSensor,
)
from stannel.triggers.temporal import DateTimeTrigger

FUTURE = datetime(2999, 1, 1, tzinfo=UTC)


@pytest.fixture
def channel() -> MemoryChannel:
    return MemoryChannel()


def dag_with(kind: Any, **arguments: Any) -> DAG:
    with DAG("d", start_date=datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))) as dag:
        kind(task_id="wait", **arguments)
    return dag


def attempt(channel: MemoryChannel, kind: Any, how: dict[str, Any] | None = None, **arguments: Any) -> Any:
    return run(dag_with(kind, **arguments), "wait", channel, **(how or {}))


def connection(conn_id: str, **parts: Any) -> ConnectionResult:
    empty = dict.fromkeys(("host", "schema", "login", "password", "port", "extra"))
    return ConnectionResult(conn_id=conn_id, conn_type="http", **{**empty, **parts})


def trigger_of(message: Any) -> dict[str, Any]:
    assert isinstance(message, DeferTask), message
    arguments: dict[str, Any] = serde.decode(message.trigger_kwargs)
    return arguments


# --- what a sensor makes of the end of its wait ----------------------------------------------------------------------
class Left(BaseSensorOperator):
    """Leaves its wait to a trigger at once; what follows raises the event, if that is an error's name."""

    def execute(self, context: Any) -> None:
        self.defer(trigger=DateTimeTrigger(FUTURE), method_name="after", timeout=self.timeout_left(context))

    def after(self, context: Any, event: Any = None) -> Any:
        if event in RAISED:
            raise RAISED[event]
        return event


class LeftAsync(Left):
    """The same, going on in an async method."""

    async def after(self, context: Any, event: Any = None) -> Any:
        return super().after(context, event)


RAISED: dict[str, Exception] = {
    "error": AirflowException("bad"),
    "fail": AirflowFailException("no use"),
    "skip": AirflowSkipException("not today"),
    "downstream": DownstreamTasksSkipped(tasks=["after"]),
    "bug": ValueError("bad"),
}


def ended(channel: MemoryChannel, kind: Any, how: dict[str, Any], **arguments: Any) -> str:
    """How the attempt after the wait ends."""
    end = run_beside(dag_with(kind, **arguments), "wait", channel, should_retry=True, **how)
    return "retried" if isinstance(end, RetryTask) else str(end.state)


@pytest.mark.parametrize("kind", [Left, LeftAsync])
@pytest.mark.parametrize(
    ("event", "hard", "soft"),
    [
        ("fine", "success", "success"),
        ("error", "retried", "skipped"),
        ("fail", "failed", "skipped"),
        ("skip", "skipped", "skipped"),
        ("downstream", "success", "success"),
        ("bug", "retried", "retried"),
    ],
)
def test_what_follows_the_wait_is_softened_as_a_look_is(
    channel: MemoryChannel, kind: Any, event: str, hard: str, soft: str
) -> None:
    message = attempt(channel, kind)
    assert ended(channel, kind, resumed(message, event)) == hard
    assert ended(channel, kind, resumed(message, event), soft_fail=True) == soft
    assert ended(channel, kind, resumed(message, event), never_fail=True) == soft


@pytest.mark.parametrize(
    ("error", "hard"), [("Trigger timeout", "failed"), ("Trigger failure", "retried"), ("execution timeout", "retried")]
)
def test_a_wait_that_took_too_long_is_the_sensors_timeout_and_never_retried(
    channel: MemoryChannel, error: str, hard: str
) -> None:
    message = attempt(channel, Left)
    assert ended(channel, Left, failed(message, error)) == hard
    assert ended(channel, Left, failed(message, error), soft_fail=True) == "skipped"


def test_a_soft_sensor_whose_execution_timeout_ended_while_it_waited_is_skipped(channel: MemoryChannel) -> None:
    arguments: dict[str, Any] = {"soft_fail": True, "execution_timeout": timedelta(hours=1)}
    message = attempt(channel, Left, **arguments)
    how = {"first_start": MOMENT - timedelta(hours=2), **resumed(message, "fine")}
    assert attempt(channel, Left, how, **arguments).state == "skipped"


def test_the_timeout_counts_from_the_first_start_of_the_try(channel: MemoryChannel) -> None:
    how = {"first_start": MOMENT - timedelta(minutes=20)}
    assert attempt(channel, Left, how, timeout=3600).trigger_timeout == timedelta(minutes=40)
    assert attempt(channel, Left, how, timeout=600).state == "failed"
    assert attempt(channel, Left, timeout=1e300).trigger_timeout > timedelta(days=10_000)


# --- moments ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "arguments", "moment"),
    [
        (DateTimeSensor, {"deferrable": True, "target_time": FUTURE}, FUTURE),
        (DateTimeSensorAsync, {"target_time": "{{ '2999-01-01' }}T00:00:00+00:00"}, FUTURE),
        (DateTimeSensorAsync, {"target_time": "2999-01-01"}, datetime(2998, 12, 31, 23, tzinfo=UTC)),
        (TimeDeltaSensor, {"deferrable": True, "delta": FUTURE - MOMENT}, FUTURE),
        (TimeDeltaSensorAsync, {"delta": FUTURE - MOMENT}, FUTURE),
        (WaitSensor, {"deferrable": True, "time_to_wait": FUTURE - MOMENT}, FUTURE),
        (TimeSensorAsync, {"target_time": time(23, 0)}, FUTURE.replace(hour=22)),
    ],
)
def test_a_sensor_for_a_moment_waits_for_it_without_a_process(
    channel: MemoryChannel, kind: Any, arguments: dict[str, Any], moment: datetime
) -> None:
    how = {"first_start": FUTURE} if kind is TimeSensorAsync else {}
    message = attempt(channel, kind, how, **arguments)
    assert message.classpath == "stannel.triggers.temporal.DateTimeTrigger"
    assert trigger_of(message) == {"moment": moment, "end_from_trigger": False}
    assert isinstance(attempt(channel, kind, resumed(message, moment), **arguments), SucceedTask)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (DateTimeSensorAsync, {"target_time": MOMENT - timedelta(days=900)}),
        (TimeDeltaSensorAsync, {"delta": -timedelta(days=900)}),
        (WaitSensor, {"time_to_wait": 0, "deferrable": True}),
    ],
)
def test_a_moment_that_has_passed_is_not_waited_for(
    channel: MemoryChannel, monkeypatch: pytest.MonkeyPatch, kind: Any, arguments: dict[str, Any]
) -> None:
    monkeypatch.setattr(timezone, "utcnow", lambda: MOMENT)
    assert isinstance(attempt(channel, kind, **arguments), SucceedTask)


def test_the_trigger_may_end_the_task(channel: MemoryChannel) -> None:
    message = attempt(channel, DateTimeSensorAsync, target_time=FUTURE, end_from_trigger=True)
    assert trigger_of(message)["end_from_trigger"] is True


def test_the_setting_decides_where_the_author_does_not(channel: MemoryChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANNEL__OPERATORS__DEFAULT_DEFERRABLE", "True")
    assert isinstance(attempt(channel, DateTimeSensor, target_time=FUTURE), DeferTask)
    assert not dag_with(FileSensor, filepath="/f", deferrable=False).get_task("wait").deferrable
    assert dag_with(TriggerDagRunOperator, trigger_dag_id="o").get_task("wait").deferrable
    monkeypatch.delenv("STANNEL__OPERATORS__DEFAULT_DEFERRABLE")
    assert not dag_with(TimeSensor, target_time=time(6)).get_task("wait").deferrable


def test_a_sensor_that_cannot_be_left_to_a_trigger_does_not_know_the_argument() -> None:
    with pytest.raises(TypeError, match="does not know the argument 'deferrable'"):
        BashSensor(task_id="b", bash_command="true", deferrable=True)


# --- starting from the trigger ---------------------------------------------------------------------------------------
def start_trigger(kind: Any, **arguments: Any) -> Any:
    (spec,) = compile_dag(dag_with(kind, start_from_trigger=True, **arguments), fileloc="f.py").tasks
    return spec.start_trigger


def test_a_known_moment_is_waited_for_before_any_process(channel: MemoryChannel) -> None:
    start = start_trigger(DateTimeSensorAsync, target_time="2999-01-01", end_from_trigger=True, timeout=60)
    assert (start.classpath, start.method, start.timeout) == (
        "stannel.triggers.temporal.DateTimeTrigger", "execute_complete", 60,
    )  # fmt: skip
    moment = datetime(2999, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    assert serde.decode(start.kwargs) == {"moment": moment, "end_from_trigger": True}
    assert not start.renders


def test_a_moment_that_is_not_known_before_the_run_is_refused_or_worked_out_by_a_process() -> None:
    with pytest.raises(Exception, match="needs a target_time without templates"):
        start_trigger(DateTimeSensorAsync, target_time="{{ ts }}")
    with pytest.warns(UserWarning, match="start_from_trigger has no effect"):
        assert start_trigger(TimeSensorAsync, target_time=time(6)) is None
    given = start_trigger(TimeSensor, target_time=time(6), trigger_kwargs={"moment": FUTURE})
    assert serde.decode(given.kwargs)["moment"] == FUTURE


def test_a_file_is_waited_for_before_any_process_if_its_path_is_whole() -> None:
    start = start_trigger(FileSensor, filepath="/data/{{ ds }}.csv", recursive=True, poke_interval=9)
    assert start.classpath == "stannel.triggers.file.FileTrigger"
    assert start.kwargs == {"filepath": "/data/{{ ds }}.csv", "recursive": True, "poke_interval": 9}
    assert start.renders
    with pytest.raises(Exception, match="needs a filepath that begins with /"):
        start_trigger(FileSensor, filepath="data.csv")


# --- files -----------------------------------------------------------------------------------------------------------
def test_a_file_is_looked_for_once_and_then_left_to_a_trigger(
    channel: MemoryChannel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    poke = FileSensor.poke
    monkeypatch.setattr(FileSensor, "poke", lambda self, context: looks.append("look") or poke(self, context))
    channel.connections["fs"] = connection("fs", extra=f'{{"path": "{tmp_path}"}}')
    arguments = {"filepath": "*.csv", "fs_conn_id": "fs", "deferrable": True, "poke_interval": 3}
    message = attempt(channel, FileSensor, **arguments)
    assert trigger_of(message) == {"filepath": f"{tmp_path}/*.csv", "recursive": False, "poke_interval": 3}
    assert looks == ["look"]
    assert isinstance(attempt(channel, FileSensor, resumed(message, True), **arguments), SucceedTask)
    assert attempt(channel, FileSensor, resumed(message, False), **arguments).state == "failed"
    assert looks == ["look"]
    (tmp_path / "a.csv").touch()
    assert isinstance(attempt(channel, FileSensor, **arguments), SucceedTask)
    assert looks == ["look"] * 2


# --- other DAGs ------------------------------------------------------------------------------------------------------
def test_another_dags_tasks_are_waited_for_by_a_trigger(channel: MemoryChannel) -> None:
    channel.prepared[GetDRCount] = [DRCount(0)]
    arguments: dict[str, Any] = {
        "external_dag_id": "o",
        "failed_states": ["failed"],
        "skipped_states": [],
        "execution_delta": timedelta(hours=1),
        "deferrable": True,
    }
    message = attempt(channel, ExternalTaskSensor, **arguments)
    assert message.classpath == "stannel.triggers.external_task.WorkflowTrigger"
    trigger = trigger_of(message)
    assert (trigger["external_dag_id"], trigger["logical_dates"]) == ("o", [MOMENT - timedelta(hours=1)])
    assert (trigger["allowed_states"], trigger["failed_states"]) == (["success"], ["failed"])

    def after(event: Any, **more: Any) -> Any:
        return attempt(channel, ExternalTaskSensor, resumed(message, event), **arguments, **more)

    assert isinstance(after({"status": "success"}), SucceedTask)
    assert after({"status": "failed"}).state == "failed"
    assert after({"status": "failed"}, soft_fail=True).state == "skipped"
    assert after({"status": "skipped"}).state == "skipped"
    assert after({"status": "odd"}).state == "failed"


def test_what_is_there_already_is_not_waited_for(channel: MemoryChannel) -> None:
    channel.prepared[GetDRCount] = [DRCount(1)]
    assert isinstance(attempt(channel, ExternalTaskSensor, external_dag_id="o", deferrable=True), SucceedTask)


def test_a_started_run_is_waited_for_by_a_trigger(channel: MemoryChannel) -> None:
    channel.prepared[TriggerDagRun] = [OKResponse()]
    channel.prepared[GetDagRunState] = [
        DagRunStateResult(RunState.SUCCESS), DagRunStateResult(RunState.RUNNING), DagRunStateResult(RunState.FAILED),
    ]  # fmt: skip
    arguments: dict[str, Any] = {
        "trigger_dag_id": "o",
        "trigger_run_id": "r",
        "wait_for_completion": True,
        "deferrable": True,
        "poke_interval": 2,
    }
    message = attempt(channel, TriggerDagRunOperator, **arguments)
    assert message.classpath == "stannel.triggers.external_task.DagStateTrigger"
    assert trigger_of(message) == {
        "dag_id": "o", "states": ["success", "failed"], "run_ids": ["r"], "logical_dates": None, "poll_interval": 2,
    }  # fmt: skip
    assert channel.sent(GetDagRunState) == []
    assert isinstance(attempt(channel, TriggerDagRunOperator, resumed(message), **arguments), SucceedTask)
    assert isinstance(attempt(channel, TriggerDagRunOperator, resumed(message), **arguments), DeferTask)
    assert attempt(channel, TriggerDagRunOperator, resumed(message), **arguments).state == "failed"
    assert len(channel.sent(TriggerDagRun)) == 1


# --- HTTP ------------------------------------------------------------------------------------------------------------
class Server(ThreadingHTTPServer):
    """Answers with the statuses it is given, one after the other, the last for ever; remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.statuses, self.asked = [200], list[str]()


class _Answers(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        statuses = self.server.statuses
        self.server.asked.append(f"{self.path} {self.headers.get('X-Who')}")
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        self.end_headers()
        self.wfile.write(b'{"state": "ready"}')

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server(channel: MemoryChannel) -> Iterator[Server]:
    with Server() as server:
        channel.connections["shop"] = connection("shop", host="127.0.0.1", port=server.server_port)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_server_is_asked_until_it_answers(channel: MemoryChannel, server: Server) -> None:
    server.statuses = [404, 404, 200]
    arguments = {"endpoint": "orders/{{ ds }}", "http_conn_id": "shop", "poke_interval": 0}
    end = attempt(channel, HttpSensor, request_params={"a": "1"}, headers={"X-Who": "me"}, **arguments)
    assert isinstance(end, SucceedTask)
    assert server.asked == ["/orders/2026-11-15?a=1 me"] * 3


def test_an_error_of_the_server_fails_the_attempt_unless_it_is_expected(
    channel: MemoryChannel, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.statuses = [500]
    assert attempt(channel, HttpSensor, endpoint="x", http_conn_id="shop").state == "failed"
    assert "answered 500" in caplog.text
    codes = {"response_error_codes_allowlist": ["500"], "mode": "reschedule"}
    assert attempt(channel, HttpSensor, endpoint="x", http_conn_id="shop", **codes).state == "up_for_reschedule"


def test_a_check_decides_about_the_answer_and_may_leave_a_value(channel: MemoryChannel, server: Server) -> None:
    def check(response: Any, ds: str) -> Any:
        return PokeReturnValue(is_done=response.json()["state"] == "ready", xcom_value=ds)

    with pytest.warns(UserWarning, match="looks itself though deferrable=True"):
        dag = dag_with(HttpSensor, endpoint="x", http_conn_id="shop", response_check=check, deferrable=True)
    assert isinstance(run(dag, "wait", channel), SucceedTask)
    assert channel.returned("wait") == "2026-11-15"


def test_the_wait_for_a_server_is_left_to_a_trigger(channel: MemoryChannel, server: Server) -> None:
    server.statuses = [404]
    arguments: dict[str, Any] = {"endpoint": "x", "http_conn_id": "shop", "deferrable": True}
    message = attempt(channel, HttpSensor, **arguments)
    assert message.classpath == "stannel.triggers.http.HttpSensorTrigger"
    assert trigger_of(message)["endpoint"] == "x"
    assert isinstance(attempt(channel, HttpSensor, resumed(message, True), **arguments), SucceedTask)
    assert len(server.asked) == 1


def test_arguments_that_no_request_understands_are_refused() -> None:
    with pytest.raises(Exception, match="only 'json' is understood"):
        dag_with(HttpSensor, endpoint="x", request_kwargs={"stream": True})


# --- what a task process has to load ---------------------------------------------------------------------------------
def test_asyncio_is_loaded_before_the_fork_only_where_tasks_will_wait() -> None:
    script = (
        "import sys\n"
        "from stannel.sdk import DAG, task\n"
        "from stannel.sdk.sensors import FileSensor\n"
        "from stannel.runner.execute import preload\n"
        "for deferrable in (False, True):\n"
        "    with DAG('d') as dag:\n"
        "        FileSensor(task_id='f', filepath='/f', deferrable=deferrable)\n"
        "    preload({'d': dag})\n"
        "    print('asyncio' in sys.modules, 'stannel.triggers.file' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True", "True"]


def test_a_wait_that_ended_in_a_state_is_a_task_state_message(channel: MemoryChannel) -> None:
    message = attempt(channel, Left)
    assert isinstance(attempt(channel, Left, resumed(message, "skip")), TaskState)
