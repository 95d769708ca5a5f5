"""The sensors that come with the SDK, and the operator that starts other DAGs' runs."""

from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from support.memory_channel import MOMENT, MemoryChannel, run

from stannel.model.states import RunState
from stannel.protocol.replies import (
    ConnectionResult,
    DagResult,
    DagRunStateResult,
    DRCount,
    ErrorResponse,
    OKResponse,
    TaskStatesResult,
)
from stannel.protocol.requests import (
    GetDag,
    GetDagRunState,
    GetDRCount,
    GetTaskStates,
    RescheduleTask,
    SucceedTask,
    TriggerDagRun,
)
from stannel.protocol.schema import ErrorCode
from stannel.sdk import DAG, timezone
from stannel.sdk.operators import TriggerDagRunOperator
from stannel.sdk.sensors import (
    BashSensor,
    DateTimeSensor,
    DayOfWeekSensor,
    ExternalTaskMarker,
    ExternalTaskSensor,
    FileSensor,
    PythonSensor,
    TimeDeltaSensor,
    TimeSensor,
    WeekDay,
)

MIDNIGHT = MOMENT.replace(hour=0, minute=0)


@pytest.fixture
def channel() -> MemoryChannel:
    return MemoryChannel()


def look(channel: MemoryChannel, kind: Any, attempt: dict[str, Any] | None = None, **arguments: Any) -> str:
    """One look: "yes", "not yet", or the state the task ends in."""
    with DAG("d", start_date=datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))) as dag:
        kind(task_id="wait", mode="reschedule", **arguments)
    ended = run(dag, "wait", channel, **(attempt or {}))
    names: dict[type[Any], str] = {SucceedTask: "yes", RescheduleTask: "not yet"}
    return names.get(type(ended)) or str(ended.state)


# --- functions and commands ------------------------------------------------------------------------------------------
def test_a_python_function_is_asked_with_its_arguments_and_the_context(channel: MemoryChannel) -> None:
    def enough(number: int, least: int, ds: str, templates_dict: dict[str, str]) -> bool:
        return number >= least and ds == templates_dict["day"]

    shared = {"python_callable": enough, "op_args": [3], "templates_dict": {"day": "{{ ds }}"}}
    assert look(channel, PythonSensor, op_kwargs={"least": 3}, **shared) == "yes"
    assert look(channel, PythonSensor, op_kwargs={"least": 4}, **shared) == "not yet"
    with pytest.raises(Exception, match="python_callable must be a function"):
        PythonSensor(task_id="t", python_callable="f")


@pytest.mark.parametrize(
    ("command", "retry_exit_code", "expected"),
    [
        ("true", None, "yes"),
        ("exit 3", None, "not yet"),
        ("true", 3, "yes"),
        ("exit 3", 3, "not yet"),
        ("exit 4", 3, "failed"),
        ("test '{{ ds }}' = 2026-11-15 -a $WHO = me -a $STANNEL_CTX_DAG_ID = d", None, "yes"),
    ],
)
def test_a_commands_exit_code_is_the_answer(
    channel: MemoryChannel, command: str, retry_exit_code: int | None, expected: str
) -> None:
    arguments = {"bash_command": command, "env": {"WHO": "me"}, "retry_exit_code": retry_exit_code}
    assert look(channel, BashSensor, {"should_retry": True}, **arguments) == expected


# --- files -----------------------------------------------------------------------------------------------------------
def test_a_file_is_waited_for(channel: MemoryChannel, tmp_path: Path) -> None:
    wanted = tmp_path / "2026-11-15.csv"
    template = str(tmp_path / "{{ ds }}.csv")
    assert look(channel, FileSensor, filepath=template) == "not yet"
    wanted.touch()
    assert look(channel, FileSensor, filepath=template) == "yes"
    assert look(channel, FileSensor, filepath=str(tmp_path / "*.csv")) == "yes"
    assert look(channel, FileSensor, filepath=str(tmp_path / "*.txt")) == "not yet"


def test_a_folder_counts_once_there_is_a_file_somewhere_in_it(channel: MemoryChannel, tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    assert look(channel, FileSensor, filepath=str(tmp_path / "in")) == "not yet"
    (tmp_path / "in" / "deep" / "a.csv").touch()
    assert look(channel, FileSensor, filepath=str(tmp_path / "in")) == "yes"
    assert look(channel, FileSensor, filepath=str(tmp_path / "**" / "a.csv")) == "not yet"
    assert look(channel, FileSensor, filepath=str(tmp_path / "**" / "a.csv"), recursive=True) == "yes"


def test_a_connection_may_say_where_files_are(channel: MemoryChannel, tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    assert look(channel, FileSensor, filepath="a.csv", fs_conn_id="landing") == "failed", "a named one must be there"
    channel.connections["landing"] = ConnectionResult(
        conn_id="landing",
        conn_type="fs",
        host=None,
        schema=None,
        login=None,
        password=None,
        port=None,
        extra=f'{{"path": "{tmp_path}"}}',
    )
    assert look(channel, FileSensor, filepath="a.csv", fs_conn_id="landing") == "yes"


# --- time ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "yes"),
        ("2020-01-01T00:00:00", "yes"),
        (datetime(9000, 1, 1, tzinfo=UTC), "not yet"),
        ("{{ macros.datetime(9000, 1, 1) }}", "not yet"),
    ],
)
def test_a_moment_is_waited_for(channel: MemoryChannel, target: Any, expected: str) -> None:
    assert look(channel, DateTimeSensor, target_time=target) == expected


def test_a_time_of_day_is_that_of_the_day_the_try_started(channel: MemoryChannel) -> None:
    now = timezone.utcnow()
    yesterday = {"first_start": now - timedelta(days=1)}
    assert look(channel, TimeSensor, yesterday, target_time=time(23, 59), timeout=1e9) == "yes"
    tomorrow = {"first_start": now + timedelta(days=1)}
    assert look(channel, TimeSensor, tomorrow, target_time=time(0, 1)) == "not yet"
    with pytest.raises(Exception, match=r"datetime\.time"):
        TimeSensor(task_id="t", target_time="12:00")


def test_a_time_of_day_is_read_in_the_dags_zone(channel: MemoryChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    # Half past midnight in Berlin is the evening before in UTC.
    monkeypatch.setattr(timezone, "utcnow", lambda: datetime(2026, 11, 14, 23, 30, tzinfo=UTC))
    started = {"first_start": datetime(2026, 11, 14, 23, 10, tzinfo=UTC)}
    assert look(channel, TimeSensor, started, target_time=time(0, 30), timeout=1e9) == "yes"
    assert look(channel, TimeSensor, started, target_time=time(0, 31), timeout=1e9) == "not yet"
    assert look(channel, TimeSensor, started, target_time=time(23, 30, tzinfo=UTC), timeout=1e9) == "yes"


def test_a_delay_counts_from_the_end_of_the_data_interval(
    channel: MemoryChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timezone, "utcnow", lambda: MOMENT + timedelta(hours=1))
    assert look(channel, TimeDeltaSensor, delta=timedelta(hours=1)) == "yes"
    assert look(channel, TimeDeltaSensor, delta=timedelta(hours=1, seconds=1)) == "not yet"
    without_interval = {"logical_date": None}
    assert look(channel, TimeDeltaSensor, without_interval, delta=timedelta(hours=1)) == "yes"
    with pytest.raises(Exception, match="must be a timedelta"):
        TimeDeltaSensor(task_id="t", delta=5)


@pytest.mark.parametrize(
    ("days", "expected"),
    [("sunday", "yes"), (WeekDay.MONDAY, "not yet"), (["Monday", WeekDay.SUNDAY], "yes"), ({"MONDAY"}, "not yet")],
)
def test_days_of_the_week(channel: MemoryChannel, days: Any, expected: str) -> None:
    assert MOMENT.strftime("%A") == "Sunday"
    assert look(channel, DayOfWeekSensor, week_day=days, use_task_logical_date=True) == expected


def test_today_is_the_day_unless_the_logical_date_is_wanted(channel: MemoryChannel) -> None:
    assert look(channel, DayOfWeekSensor, week_day=list(WeekDay)) == "yes"
    no_date = {"logical_date": None}
    assert look(channel, DayOfWeekSensor, no_date, week_day="monday", use_task_logical_date=True) == "failed"


@pytest.mark.parametrize("days", ["someday", [], 3, [3]])
def test_what_is_no_day_is_refused(days: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        DayOfWeekSensor(task_id="t", week_day=days)


# --- other DAGs ------------------------------------------------------------------------------------------------------
def _states(**tasks: str | None) -> dict[type[Any], list[Any]]:
    return {GetTaskStates: [TaskStatesResult({"r": tasks} if tasks else {})]}


@pytest.mark.parametrize(
    ("tasks", "arguments", "expected"),
    [
        ({"a": "success"}, {"external_task_id": "a"}, "yes"),
        ({"a": "running"}, {"external_task_id": "a"}, "not yet"),
        ({"a": None}, {"external_task_id": "a"}, "not yet"),
        ({}, {"external_task_id": "a"}, "not yet"),
        ({"a": "failed"}, {"external_task_id": "a"}, "not yet"),
        ({"a": "failed"}, {"external_task_id": "a", "allowed_states": ["failed", "success"]}, "yes"),
        ({"a": "failed"}, {"external_task_id": "a", "failed_states": ["failed"]}, "failed"),
        ({"a": "failed"}, {"external_task_id": "a", "failed_states": ["failed"], "soft_fail": True}, "skipped"),
        ({"a": "skipped"}, {"external_task_id": "a", "skipped_states": ["skipped"]}, "skipped"),
        ({"a": "success", "b": "success"}, {"external_task_ids": ["a", "b"]}, "yes"),
        ({"a": "success", "b": "running"}, {"external_task_ids": ["a", "b"]}, "not yet"),
        ({"a": "success"}, {"external_task_ids": ["a", "b"]}, "not yet"),
        ({"a_0": "success", "a_1": "success"}, {"external_task_id": "a"}, "yes"),
        ({"a_0": "success", "a_1": "queued"}, {"external_task_id": "a"}, "not yet"),
        ({"g.a": "success", "g.b": "success"}, {"external_task_group_id": "g"}, "yes"),
        ({"g.a": "success", "g.b": None}, {"external_task_group_id": "g"}, "not yet"),
    ],
)
def test_tasks_of_another_dag_are_waited_for(
    channel: MemoryChannel, tasks: dict[str, str | None], arguments: dict[str, Any], expected: str
) -> None:
    channel.prepared = _states(**tasks)
    assert look(channel, ExternalTaskSensor, external_dag_id="other", **arguments) == expected
    asked = channel.sent(GetTaskStates)[-1]
    assert (asked.dag_id, asked.logical_dates) == ("other", [MOMENT])


def test_a_whole_run_is_waited_for(channel: MemoryChannel) -> None:
    channel.prepared = {GetDRCount: [DRCount(0), DRCount(0), DRCount(1)]}
    settings = {"external_dag_id": "other", "failed_states": ["failed"]}
    assert look(channel, ExternalTaskSensor, **settings) == "not yet"
    assert [one.states for one in channel.sent(GetDRCount)] == [["failed"], ["success"]]
    assert look(channel, ExternalTaskSensor, **settings) == "failed"
    assert look(channel, ExternalTaskSensor, external_dag_id="other") == "yes"


def test_a_group_of_a_dag_that_is_not_there_yet_is_waited_for(channel: MemoryChannel) -> None:
    channel.prepared = {GetTaskStates: [ErrorResponse(ErrorCode.API_SERVER_ERROR, {"status_code": 404})]}
    assert look(channel, ExternalTaskSensor, external_dag_id="o", external_task_group_id="g") == "not yet"


@pytest.mark.parametrize(
    ("arguments", "dates"),
    [
        ({"execution_delta": timedelta(hours=1)}, [MOMENT - timedelta(hours=1)]),
        ({"execution_date_fn": lambda moment: moment + timedelta(days=1)}, [MOMENT + timedelta(days=1)]),
        ({"execution_date_fn": lambda moment, ds: [timezone.parse(ds), moment]}, [MIDNIGHT, MOMENT]),
        ({"execution_date_fn": lambda moment, context: context["logical_date"]}, [MOMENT]),
        ({"execution_date_fn": lambda moment, **kwargs: kwargs["data_interval_end"]}, [MOMENT]),
    ],
)
def test_the_logical_date_of_the_other_run_can_be_computed(
    channel: MemoryChannel, arguments: dict[str, Any], dates: list[datetime]
) -> None:
    channel.prepared = {GetDRCount: [DRCount(1)]}
    expected = "yes" if len(dates) == 1 else "not yet"
    assert look(channel, ExternalTaskSensor, external_dag_id="other", **arguments) == expected
    assert channel.sent(GetDRCount)[-1].logical_dates == dates


def test_a_run_without_a_logical_date_cannot_wait_for_another(channel: MemoryChannel) -> None:
    attempt = {"logical_date": None, "should_retry": True}
    assert look(channel, ExternalTaskSensor, attempt, external_dag_id="other") == "failed"


def test_what_does_not_exist_is_not_waited_for_if_that_is_wanted(channel: MemoryChannel) -> None:
    there = DagResult(
        dag_id="other",
        is_paused=False,
        bundle_name=None,
        bundle_version=None,
        relative_fileloc=None,
        owners=None,
        tags=[],
        next_dagrun=None,
    )
    arguments = {"external_dag_id": "other", "external_task_id": "a", "check_existence": True}
    channel.prepared = {GetDag: [ErrorResponse(ErrorCode.API_SERVER_ERROR, {"status_code": 404})], **_states()}
    assert look(channel, ExternalTaskSensor, **arguments) == "failed"
    channel.prepared |= {GetDag: [there], GetDRCount: [DRCount(0)]}
    assert look(channel, ExternalTaskSensor, **arguments) == "not yet", "its run may still come"
    channel.prepared |= {GetDRCount: [DRCount(1)]}
    assert look(channel, ExternalTaskSensor, **arguments) == "failed", "the run is there, without such a task"
    channel.prepared |= _states(a="running")
    assert look(channel, ExternalTaskSensor, **arguments) == "not yet"


@pytest.mark.parametrize(
    "wrong",
    [
        {"external_task_id": "a", "external_task_ids": ["b"]},
        {"external_task_id": "a", "external_task_group_id": "g"},
        {"execution_delta": timedelta(1), "execution_date_fn": lambda moment: moment},
        {"allowed_states": ["excellent"]},
        {"allowed_states": ["skipped"]},
        {"allowed_states": ["failed"], "failed_states": ["failed"]},
    ],
)
def test_contradictions_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="task 't'"):
        ExternalTaskSensor(task_id="t", external_dag_id="other", **wrong)


def test_a_marker_says_what_it_does_not_do() -> None:
    with pytest.warns(UserWarning, match="does not clear 'b' of 'other'"):
        ExternalTaskMarker(task_id="mark", external_dag_id="other", external_task_id="b")


# --- starting other DAGs ---------------------------------------------------------------------------------------------
def trigger(channel: MemoryChannel, **arguments: Any) -> Any:
    with DAG("d") as dag:
        TriggerDagRunOperator(task_id="start", trigger_dag_id="other", poke_interval=0, **arguments)
    channel.prepared.setdefault(TriggerDagRun, [OKResponse()])
    return run(dag, "start", channel, should_retry=True)


def test_a_run_of_another_dag_is_started(channel: MemoryChannel) -> None:
    made = trigger(
        channel, trigger_run_id="mine__{{ ds }}", conf={"day": "{{ ds }}"}, logical_date="{{ ts }}", note="hi"
    )
    assert isinstance(made, SucceedTask)
    assert channel.sent(TriggerDagRun) == [
        TriggerDagRun(
            dag_id="other",
            run_id="mine__2026-11-15",
            logical_date=MOMENT,
            conf={"day": "2026-11-15"},
            note="hi",
        )
    ]
    assert channel.xcoms["start", "trigger_run_id", -1] == "mine__2026-11-15"


def test_the_run_is_about_now_unless_said(channel: MemoryChannel) -> None:
    before = timezone.utcnow()
    trigger(channel)
    trigger(channel, logical_date=None)
    about_now, about_nothing = channel.sent(TriggerDagRun)
    assert before <= about_now.logical_date <= timezone.utcnow()
    assert about_now.run_id == f"manual__{about_now.logical_date.isoformat()}"
    assert about_nothing.logical_date is None
    assert about_nothing.run_id.startswith("manual__")


@pytest.mark.parametrize(
    ("states", "arguments", "expected"),
    [
        (["queued", "running", "success"], {}, "success"),
        (["running", "failed"], {}, "up_for_retry"),
        (["running", "failed"], {"allowed_states": ["success", "failed"], "failed_states": []}, "success"),
        (["running"], {"failed_states": ["running"]}, "up_for_retry"),
    ],
)
def test_the_end_of_the_run_can_be_waited_for(
    channel: MemoryChannel, states: list[str], arguments: dict[str, Any], expected: str
) -> None:
    channel.prepared = {GetDagRunState: [DagRunStateResult(RunState(state)) for state in states]}
    assert trigger(channel, wait_for_completion=True, **arguments).state == expected
    assert len(channel.sent(GetDagRunState)) == len(states)


def test_a_run_that_is_there_already_fails_or_skips_the_task(channel: MemoryChannel) -> None:
    channel.prepared = {TriggerDagRun: [ErrorResponse(ErrorCode.DAGRUN_ALREADY_EXISTS, None)]}
    assert trigger(channel).state == "up_for_retry"
    assert trigger(channel, skip_when_already_exists=True).state == "skipped"


def test_a_paused_dag_fails_the_task_if_that_is_wanted(channel: MemoryChannel) -> None:
    paused = DagResult(
        dag_id="other",
        is_paused=True,
        bundle_name=None,
        bundle_version=None,
        relative_fileloc=None,
        owners=None,
        tags=[],
        next_dagrun=None,
    )
    channel.prepared = {GetDag: [paused]}
    assert trigger(channel, fail_when_dag_is_paused=True).state == "failed"
    assert channel.sent(TriggerDagRun) == []


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(Exception, match="allowed_states is 'fine'"):
        TriggerDagRunOperator(task_id="t", trigger_dag_id="o", allowed_states=["fine"])


def test_a_conf_that_cannot_travel_says_so(channel: MemoryChannel, caplog: pytest.LogCaptureFixture) -> None:
    assert trigger(channel, conf={"what": object()}).state == "up_for_retry"
    assert "conf cannot travel" in caplog.text
