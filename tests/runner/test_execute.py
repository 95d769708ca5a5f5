"""An attempt in the task process, driven through `execute` with an engine in memory."""

import logging
import signal
import time
from datetime import timedelta
from typing import Any

import pytest
from support.memory_channel import MOMENT, MemoryChannel, run, run_beside, startup

from stannel.protocol.requests import (
    DeleteXCom,
    RetryTask,
    SetXCom,
    SucceedTask,
    TaskState,
)
from stannel.runner.channel import SupervisorGone
from stannel.runner.execute import execute, execute_callback
from stannel.sdk import DAG, BaseOperator, Variable, task
from stannel.sdk.exceptions import AirflowFailException, AirflowSkipException, AirflowTaskTerminated
from stannel.sdk.operators import (
    BashOperator,
    PythonOperator,
)


@pytest.fixture
def channel() -> MemoryChannel:
    return MemoryChannel()


# --- plain tasks -----------------------------------------------------------------------------------------------------
def test_a_returned_value_is_left_as_xcom_and_the_task_succeeds(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task
        def answer() -> int:
            return 42

        answer()
    result = run(dag, "answer", channel)
    assert isinstance(result, SucceedTask)
    (pushed,) = channel.sent(SetXCom)
    assert (pushed.dag_id, pushed.task_id, pushed.key, pushed.value, pushed.map_index) == (
        "d", "answer", "return_value", 42, -1,
    )  # fmt: skip
    assert pushed.run_id == "manual__2026-11-15T06:30:00+00:00"


def test_a_task_that_returns_nothing_asks_nothing(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task
        def noop() -> None:
            return None

        noop()
    assert isinstance(run(dag, "noop", channel), SucceedTask)
    assert channel.asked == []


def test_a_value_travels_from_task_to_task(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task
        def numbers() -> list[int]:
            return [1, 2, 3]

        @task
        def total(values: list[int], extra: dict[str, Any]) -> int:
            return sum(values) + sum(extra["more"])

        first = numbers()
        total(first, extra={"more": first})
    run(dag, "numbers", channel)
    run(dag, "total", channel)
    assert channel.returned("total") == 12
    assert channel.lengths["numbers", "return_value", -1] == 3


def test_what_can_be_mapped_over_is_sent_with_its_length(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task(multiple_outputs=True)
        def parts() -> Any:
            return {"list": [1, 2], "pair": (1, 2), "none": [], "text": "abc"}

        parts()
    run(dag, "parts", channel)
    lengths = {key: length for (_, key, _), length in channel.lengths.items()}
    assert lengths == {"list": 2, "pair": 2, "none": 0, "text": None, "return_value": 4}


def test_an_async_function_is_awaited(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task
        async def later() -> str:
            return "done"

        later()
    run_beside(dag, "later", channel)
    assert channel.returned("later") == "done"


def test_multiple_outputs_become_an_xcom_each(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task
        def parts() -> dict[str, int]:
            return {"a": 1, "b": 2}

        @task
        def use(b: int) -> int:
            return b

        use(parts()["b"])
    run(dag, "parts", channel)
    run(dag, "use", channel)
    assert channel.xcoms["parts", "a", -1] == 1
    assert channel.returned("parts") == {"a": 1, "b": 2}
    assert channel.returned("use") == 2


def test_a_missing_named_output_fails_with_the_names(channel: MemoryChannel, caplog: pytest.LogCaptureFixture) -> None:
    with DAG("d") as dag:

        @task(multiple_outputs=True)
        def parts() -> dict[str, int]:
            return {}

        @task
        def use(b: int) -> int:
            return b

        use(parts()["missing"])
    assert run(dag, "use", channel).state == "failed"
    assert "'parts'" in caplog.text
    assert "'missing'" in caplog.text


def test_do_xcom_push_false_leaves_nothing(channel: MemoryChannel) -> None:
    with DAG("d") as dag:
        PythonOperator(task_id="t", python_callable=lambda: 1, do_xcom_push=False)
    run(dag, "t", channel)
    assert channel.asked == []


def test_dates_and_tuples_arrive_as_what_they_were(channel: MemoryChannel) -> None:
    seen = []
    with DAG("d") as dag:

        @task
        def make() -> Any:
            return {"at": MOMENT, "pair": (1, 2)}

        @task
        def take(value: Any) -> None:
            seen.append(value)

        take(make())
    run(dag, "make", channel)
    run(dag, "take", channel)
    assert seen == [{"at": MOMENT, "pair": (1, 2)}]


def test_the_dags_own_task_is_left_as_the_author_wrote_it(channel: MemoryChannel) -> None:
    with DAG("d") as dag:
        BashOperator(task_id="b", bash_command="echo {{ ds }}")
    run(dag, "b", channel)
    assert dag.get_task("b").bash_command == "echo {{ ds }}"


# --- how attempts end ------------------------------------------------------------------------------------------------
def raising(error: BaseException) -> DAG:
    def fail() -> None:
        raise error

    with DAG("d") as dag:
        PythonOperator(task_id="t", python_callable=fail)
    return dag


def test_a_skip_exception_ends_as_skipped(channel: MemoryChannel) -> None:
    result = run(raising(AirflowSkipException("not today")), "t", channel, should_retry=True)
    assert isinstance(result, TaskState)
    assert result.state == "skipped"


def test_a_fail_exception_fails_whatever_retries_remain(channel: MemoryChannel) -> None:
    result = run(raising(AirflowFailException("no use")), "t", channel, should_retry=True)
    assert isinstance(result, TaskState)
    assert result.state == "failed"


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt()])
def test_any_other_error_asks_for_a_retry_if_one_remains(channel: MemoryChannel, error: BaseException) -> None:
    result = run(raising(error), "t", channel, should_retry=True)
    assert isinstance(result, RetryTask)
    assert result.retry_reason is not None
    assert result.retry_reason.startswith(type(error).__name__)
    assert run(raising(error), "t", channel).state == "failed"


def test_a_lost_supervisor_is_not_a_failed_task(channel: MemoryChannel) -> None:
    with pytest.raises(SupervisorGone):
        run(raising(SupervisorGone()), "t", channel)


def test_the_log_shows_the_authors_frames_only(channel: MemoryChannel, caplog: pytest.LogCaptureFixture) -> None:
    run(raising(ValueError("in here")), "t", channel)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    text = logging.Formatter().formatException(record.exc_info)  # type: ignore[arg-type]
    assert "in fail" in text
    assert "stannel/runner" not in text
    assert "stannel/sdk" not in text


def test_a_task_that_is_not_in_the_file_fails_and_says_so(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    dag = raising(ValueError())
    assert run(dag, "other", channel).state == "failed"
    assert "'other'" in caplog.text
    assert execute(startup("nowhere", "t"), {"d": dag}, channel).state == "failed"


def test_a_value_that_cannot_travel_fails_with_task_and_place(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    with DAG("d") as dag:
        PythonOperator(task_id="t", python_callable=lambda: {"a": [1, object()]})
    assert run(dag, "t", channel).state == "failed"
    assert "'t'" in caplog.text
    assert "['a'][1]" in caplog.text


def test_an_error_raised_on_purpose_needs_no_traceback(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    with DAG("d") as dag:
        PythonOperator(task_id="t", python_callable=object)
    run(dag, "t", channel)
    assert "Traceback" not in caplog.text
    assert "the return value of task 't' in DAG 'd'" in caplog.text


def test_a_refused_xcom_fails_with_the_engines_reason(channel: MemoryChannel, caplog: pytest.LogCaptureFixture) -> None:
    channel.largest = 1000
    with DAG("d") as dag:
        PythonOperator(task_id="t", python_callable=lambda: "x" * 2000)
    assert run(dag, "t", channel).state == "failed"
    assert "too many" in caplog.text


def test_a_task_over_its_time_is_stopped(channel: MemoryChannel) -> None:
    stopped = []

    class Slow(BaseOperator):
        def execute(self, context: Any) -> None:
            signal.pause()

        def on_kill(self) -> None:
            stopped.append(True)

    with DAG("d") as dag:
        Slow(task_id="t", execution_timeout=timedelta(seconds=0.02))
    before = signal.getsignal(signal.SIGALRM)
    result = run(dag, "t", channel, should_retry=True)
    assert isinstance(result, RetryTask)
    assert "0.02 s" in (result.retry_reason or "")
    assert stopped == [True]
    assert signal.getsignal(signal.SIGALRM) is before


def test_the_alarm_waits_for_the_end_of_a_request(channel: MemoryChannel) -> None:
    finished = []

    class SlowChannel(MemoryChannel):
        def request(self, body: Any) -> Any:
            while signal.getitimer(signal.ITIMER_REAL)[0] > 0:
                time.sleep(0.001)
            finished.append(body)
            return super().request(body)

    with DAG("d") as dag:
        PythonOperator(
            task_id="t", python_callable=lambda ti: ti.xcom_push("k", 1), execution_timeout=timedelta(seconds=0.02)
        )
    assert run(dag, "t", SlowChannel()).state == "failed"
    assert len(finished) == 1


def test_a_stopped_task_cleans_up_and_is_not_retried(channel: MemoryChannel) -> None:
    stopped = []

    class Stopped(BaseOperator):
        def execute(self, context: Any) -> None:
            raise AirflowTaskTerminated("the task was told to stop")

        def on_kill(self) -> None:
            stopped.append(self.task_id)

    with DAG("d") as dag:
        Stopped(task_id="t")
    assert run(dag, "t", channel, should_retry=True).state == "failed"
    assert stopped == ["t"]


def test_what_an_earlier_attempt_left_is_removed_first(channel: MemoryChannel) -> None:
    with DAG("d") as dag:
        PythonOperator(task_id="t", python_callable=lambda: 1)
    run(dag, "t", channel, xcom_keys_to_clear=["old", "older"])
    assert [body.key for body in channel.sent(DeleteXCom)] == ["old", "older"]
    assert isinstance(channel.asked[-1], SetXCom)


# --- callbacks -------------------------------------------------------------------------------------------------------
def with_callbacks(function: Any) -> tuple[DAG, list[Any]]:
    calls: list[Any] = []

    def note(kind: str) -> Any:
        return lambda context: calls.append((kind, type(context.get("exception")).__name__))

    with DAG("d") as dag:
        PythonOperator(
            task_id="t",
            python_callable=function,
            on_execute_callback=note("execute"),
            on_success_callback=note("success"),
            on_failure_callback=[note("failure"), note("failure again")],
            on_retry_callback=note("retry"),
            on_skipped_callback=note("skipped"),
        )
    return dag, calls


def explode() -> None:
    raise ValueError


def skip() -> None:
    raise AirflowSkipException


@pytest.mark.parametrize(
    ("function", "should_retry", "expected"),
    [
        (lambda: 1, False, [("execute", "NoneType"), ("success", "NoneType")]),
        (explode, False, [("execute", "NoneType"), ("failure", "ValueError"), ("failure again", "ValueError")]),
        (explode, True, [("execute", "NoneType"), ("retry", "ValueError")]),
        (skip, False, [("execute", "NoneType"), ("skipped", "AirflowSkipException")]),
    ],
)
def test_the_callbacks_of_the_outcome_run(
    channel: MemoryChannel, function: Any, should_retry: bool, expected: list[Any]
) -> None:
    dag, calls = with_callbacks(function)
    run(dag, "t", channel, should_retry=should_retry)
    assert calls == expected


def test_a_callback_that_fails_is_logged_and_changes_nothing(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(context: Any) -> None:
        raise RuntimeError("callback broke")

    with DAG("d") as dag:
        PythonOperator(task_id="t", python_callable=lambda: 1, on_success_callback=broken)
    assert isinstance(run(dag, "t", channel), SucceedTask)
    assert "callback broke" in caplog.text


def test_a_callback_may_use_the_engine(channel: MemoryChannel) -> None:
    with DAG("d") as dag:
        PythonOperator(
            task_id="t", python_callable=lambda: 1, on_success_callback=lambda context: Variable.set("last", "ok")
        )
    run(dag, "t", channel)
    assert channel.variables == {"last": "ok"}


def test_callbacks_can_run_without_the_task(channel: MemoryChannel) -> None:
    calls: list[str] = []
    with DAG("d", on_failure_callback=lambda context: calls.append(f"dag {context['dag'].dag_id}")) as dag:
        PythonOperator(
            task_id="t",
            python_callable=explode,
            on_failure_callback=lambda context: calls.append(str(context["exception"])),
        )
    of_task, of_dag = ({"kind": "failure", "scope": scope, "reason": "it died"} for scope in ("task", "dag"))
    execute_callback(startup("d", "t"), {"d": dag}, channel, of_task)
    execute_callback(startup("d", "gone"), {"d": dag}, channel, of_dag)
    execute_callback(startup("d", "gone"), {"d": dag}, channel, of_task)
    assert calls == ["it died", "dag d"]
