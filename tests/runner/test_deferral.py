"""Attempts that wait: what they hand over, and how the next attempt goes on."""

import logging
import select
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.memory_channel import MOMENT, MemoryChannel, failed, resumed, run, run_beside

from stannel.protocol.requests import DeferTask, DeleteXCom, RetryTask, SetRenderedFields, SucceedTask, TaskState
from stannel.runner.deferral import LARGEST_DEFERRAL
from stannel.sdk import DAG, BaseOperator, serde
from stannel.sdk.exceptions import (
    AirflowSkipException,
    AirflowTaskTimeout,
    DownstreamTasksSkipped,
    TaskDeferralError,
    TaskDeferralTimeout,
    TaskDeferred,
)
from stannel.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent
from stannel.triggers.temporal import DateTimeTrigger, TimeDeltaTrigger

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


class Waiting(BaseTrigger):
    """A trigger with whatever arguments a test wants."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.arguments = arguments

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "tests.Waiting", self.arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield TriggerEvent()


class Watching(BaseEventTrigger):
    """A trigger that does not take over its task's queue."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "tests.Watching", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield TriggerEvent()


class Job(BaseOperator):
    """Defers with what it is given; where it goes on, it remembers what it got."""

    template_fields = ("name",)

    def __init__(self, *, name: str = "", wait: dict[str, Any] | None = None, **kwargs: Any) -> None:
        kwargs.setdefault("task_id", "job")
        super().__init__(**kwargs)
        self.name = name
        self.wait = {"trigger": DateTimeTrigger(NOON), "method_name": "done", **(wait or {})}

    def execute(self, context: Any) -> Any:
        self.defer(**self.wait)

    def done(self, context: Any, event: Any = None, **kwargs: Any) -> Any:
        return {"event": event, **kwargs}

    def refuses_events(self, context: Any) -> None: ...

    async def later(self, context: Any, event: Any) -> Any:
        return event

    def again(self, context: Any, event: Any, rounds: int) -> Any:
        if rounds:
            self.defer(trigger=Waiting(), method_name="again", kwargs={"rounds": rounds - 1})
        return event

    def raises(self, context: Any, event: BaseException) -> None:
        raise _RAISED[str(event)]


_RAISED = {
    "skip": AirflowSkipException("not today"),
    "skip downstream": DownstreamTasksSkipped(tasks=["after"]),
    "bug": ValueError("bad"),
}


@pytest.fixture
def channel() -> MemoryChannel:
    return MemoryChannel()


def dag_of(**arguments: Any) -> DAG:
    with DAG("d") as dag:
        Job(**arguments)
    return dag


def deferred(channel: MemoryChannel, **wait: Any) -> DeferTask:
    ended = run(dag_of(wait=wait), "job", channel)
    assert isinstance(ended, DeferTask), channel
    return ended


# --- what is handed over ---------------------------------------------------------------------------------------------
def test_a_deferral_names_the_trigger_its_arguments_and_where_to_go_on(channel: MemoryChannel) -> None:
    message = deferred(channel, kwargs={"order": 7, "since": NOON}, timeout=timedelta(hours=2))
    assert message.classpath == "stannel.triggers.temporal.DateTimeTrigger"
    assert message.trigger_kwargs == {
        "moment": {"__classname__": "datetime.datetime", "__version__": 1, "__data__": "2026-11-15T12:00:00+00:00"},
        "end_from_trigger": False,
    }
    assert message.next_method == "done"
    assert message.next_kwargs is not None
    assert message.next_kwargs["order"] == 7
    assert message.trigger_timeout == timedelta(hours=2)
    assert message.queue is None


def test_defer_takes_its_arguments_by_position_too(channel: MemoryChannel) -> None:
    class Positional(BaseOperator):
        def execute(self, context: Any) -> None:
            self.defer(TimeDeltaTrigger(timedelta(hours=1)), "done", {"order": 7}, timedelta(minutes=3))

        def done(self, context: Any, event: Any, order: int) -> None: ...

    with DAG("d") as dag:
        Positional(task_id="job")
    message = run(dag, "job", channel)
    assert (message.next_method, message.next_kwargs, message.trigger_timeout) == (
        "done", {"order": 7}, timedelta(minutes=3),
    )  # fmt: skip


def test_the_exception_raised_by_hand_defers_as_well_and_its_timeout_may_be_seconds(channel: MemoryChannel) -> None:
    class ByHand(BaseOperator):
        def execute(self, context: Any) -> None:
            try:
                raise TaskDeferred(trigger=Waiting(), method_name="done", timeout=90)
            except Exception as error:
                raise AssertionError("a deferral must not be caught by accident") from error

        def done(self, context: Any, event: Any) -> None: ...

    with DAG("d") as dag:
        ByHand(task_id="job")
    assert run(dag, "job", channel).trigger_timeout == timedelta(seconds=90)


def test_a_trigger_that_ends_the_task_needs_no_method(channel: MemoryChannel) -> None:
    assert deferred(channel, method_name=None).next_method == ""


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        ({"trigger": "tomorrow"}, "a trigger is an instance of BaseTrigger"),
        ({"trigger": DateTimeTrigger}, "make an instance of it"),
        ({"method_name": "don"}, "did you mean done?"),
        ({"method_name": "refuses_events"}, "must take the keyword argument `event`"),
        ({"trigger": Waiting(lock=object())}, "the argument 'lock' of the trigger Waiting"),
        ({"kwargs": {"lock": object()}}, "the argument 'lock' of defer()"),
        ({"kwargs": {"much": "x" * LARGEST_DEFERRAL}}, "more than 8,388,608"),
    ],
)
def test_a_wait_that_cannot_end_well_fails_the_attempt_and_says_why(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture, wait: dict[str, Any], words: str
) -> None:
    ended = run(dag_of(wait=wait), "job", channel, should_retry=True)
    assert isinstance(ended, RetryTask)
    assert words in caplog.text


def test_a_trigger_that_describes_itself_wrongly_fails_the_attempt_without_showing_what_it_said(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(Waiting):
        def serialize(self) -> Any:
            return {"secret": "swordfish"}

    assert run(dag_of(wait={"trigger": Odd()}), "job", channel).state == "failed"
    assert "Odd.serialize() must give the path of its class" in caplog.text
    assert "swordfish" not in caplog.text


@pytest.mark.parametrize(
    ("enabled", "trigger", "queue"),
    [
        ("true", Waiting(), "fast"),
        ("false", Waiting(), None),
        ("true", Watching(), None),
        ("true", Watching(queue="own"), "own"),
        ("false", Watching(queue="own"), "own"),
    ],
)
def test_a_trigger_is_run_in_its_own_queue_or_inherits_its_tasks(
    channel: MemoryChannel, monkeypatch: pytest.MonkeyPatch, enabled: str, trigger: Any, queue: str | None
) -> None:
    monkeypatch.setenv("STANNEL__TRIGGERER__QUEUES_ENABLED", enabled)
    ended = run(dag_of(queue="fast", wait={"trigger": trigger}), "job", channel)
    assert ended.queue == queue


def test_the_log_names_what_is_waited_for_but_shows_no_argument_that_may_be_secret(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    trigger = Waiting(since=NOON, table="swordfish", encrypted__key="swordfish", nested=[{"token": "swordfish"}])
    deferred(channel, trigger=trigger, timeout=60)
    (line,) = [record.getMessage() for record in caplog.records if "Deferred to" in record.getMessage()]
    assert f"<tests.Waiting since={NOON}, table, encrypted__key, nested>" in line
    assert "resumes at done(), until " in line
    assert "swordfish" not in caplog.text


def test_no_callback_is_called_when_a_task_defers(channel: MemoryChannel) -> None:
    called: list[str] = []
    kinds = ("success", "failure", "retry", "skipped")
    hooks: dict[str, Any] = {f"on_{kind}_callback": lambda _, kind=kind: called.append(kind) for kind in kinds}
    assert isinstance(run(dag_of(**hooks), "job", channel, should_retry=True), DeferTask)
    assert called == []


# --- going on --------------------------------------------------------------------------------------------------------
def test_the_event_and_the_kept_arguments_reach_the_method(channel: MemoryChannel) -> None:
    message = deferred(channel, kwargs={"order": 7, "since": NOON, "pair": (1, 2)})
    ended = run(dag_of(), "job", channel, **resumed(message, {"at": NOON}))
    assert isinstance(ended, SucceedTask)
    assert serde.decode(channel.returned("job")) == {"event": {"at": NOON}, "order": 7, "since": NOON, "pair": (1, 2)}


def test_a_task_may_defer_any_number_of_times(channel: MemoryChannel) -> None:
    message = deferred(channel, method_name="again", kwargs={"rounds": 3})
    for number in range(3):
        message = run(dag_of(), "job", channel, **resumed(message, number))
        assert isinstance(message, DeferTask)
    assert isinstance(run(dag_of(), "job", channel, **resumed(message, "end")), SucceedTask)
    assert channel.returned("job") == "end"


def test_the_method_may_be_async(channel: MemoryChannel) -> None:
    message = deferred(channel, method_name="later")
    run_beside(dag_of(), "job", channel, **resumed(message, 5))
    assert channel.returned("job") == 5


def test_a_resumed_task_skips_and_fails_like_any_other(channel: MemoryChannel) -> None:
    message = deferred(channel, method_name="raises")
    assert run(dag_of(), "job", channel, **resumed(message, "skip")).state == "skipped"
    assert isinstance(run(dag_of(), "job", channel, should_retry=True, **resumed(message, "bug")), RetryTask)
    assert isinstance(run(dag_of(), "job", channel, **resumed(message, "skip downstream")), SucceedTask)


def test_hooks_and_templates_run_again_and_xcoms_stay(channel: MemoryChannel, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    called: list[str] = []
    arguments: dict[str, Any] = {
        "name": "{{ ds }}",
        "pre_execute": lambda context: called.append(f"pre {context['task'].name}"),
        "on_execute_callback": lambda context: called.append("execute"),
    }
    message = run(dag_of(**arguments), "job", channel)
    channel.asked.clear()
    run(dag_of(**arguments), "job", channel, xcom_keys_to_clear=["progress"], **resumed(message, "it"))
    assert called == ["execute", "pre 2026-11-15", "execute", "pre 2026-11-15"]
    assert channel.sent(SetRenderedFields)
    assert channel.sent(DeleteXCom) == []
    assert "Resumed by 'it'" in caplog.text


def test_an_instance_of_a_mapped_task_goes_on_with_its_own_arguments(channel: MemoryChannel) -> None:
    class Named(Job):
        def done(self, context: Any, event: Any = None, **kwargs: Any) -> Any:
            return [self.name, context["ti"].map_index, event]

    with DAG("d") as dag:
        Named.partial(task_id="job").expand(name=["a", "b"])
    message = run(dag, "job", channel, map_index=1)
    assert isinstance(run(dag, "job", channel, map_index=1, **resumed(message, "e")), SucceedTask)
    assert channel.returned("job", 1) == ["b", 1, "e"]


# --- waits that fail -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("error", "expected"),
    [("Trigger timeout", TaskDeferralTimeout), ("Trigger failure", TaskDeferralError), ("gone", TaskDeferralError)],
)
def test_a_failed_wait_fails_the_task_which_may_be_retried(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture, error: str, expected: type[Exception]
) -> None:
    message = deferred(channel)
    again = failed(message, error, ["Traceback\n", "ValueError: no such queue\n"])
    ended = run(dag_of(), "job", channel, should_retry=True, **again)
    assert isinstance(ended, RetryTask)
    assert ended.retry_reason == f"{expected.__name__}: {error}"
    assert "Trigger failed:\nTraceback\nValueError: no such queue" in caplog.text


def test_what_cannot_be_read_back_fails_the_task_with_the_reason(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    broken = {"order": {"__classname__": "gone:Order", "__version__": 1, "__data__": {}}}
    ended = run(dag_of(), "job", channel, next_method="done", next_kwargs=broken, should_retry=True)
    assert isinstance(ended, RetryTask)
    assert "Could not resume the task: its stored next_kwargs could not be decoded (NotSerializable: " in caplog.text


@pytest.mark.parametrize("method", ["renamed", ""])
def test_a_method_that_is_gone_fails_the_task_with_its_name(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    assert run(dag_of(), "job", channel, next_method=method, next_kwargs={}).state == "failed"
    assert f"The task cannot go on at {method!r}: Job has no such method" in caplog.text


# --- the time limit of the whole try ---------------------------------------------------------------------------------
class Slow(Job):
    """Is stopped in whatever it goes on with."""

    stopped = 0

    def on_kill(self) -> None:
        Slow.stopped += 1

    def done(self, context: Any, event: Any = None, **kwargs: Any) -> Any:
        # The alarm ends this; without one it would be the task's failure that nothing did.
        select.select([], [], [], 30.0)
        raise AssertionError("nobody stopped the task")


def test_a_resumed_task_has_only_what_is_left_of_its_execution_timeout(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    with DAG("d") as dag:
        Slow(execution_timeout=timedelta(hours=1))
    message = run(dag, "job", channel)
    nearly_over = MOMENT - timedelta(hours=1) + timedelta(milliseconds=50)
    ended = run(dag, "job", channel, first_start=nearly_over, **resumed(message))
    assert isinstance(ended, TaskState)
    assert ended.state == "failed"
    assert "AirflowTaskTimeout: the task ran longer than its execution_timeout of 3600 s" in caplog.text


def test_a_task_whose_time_was_up_while_it_waited_ends_at_once(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    with DAG("d") as dag:
        Slow(execution_timeout=timedelta(hours=1))
    message = run(dag, "job", channel)
    before = Slow.stopped
    ended = run(dag, "job", channel, first_start=MOMENT - timedelta(hours=2), should_retry=True, **resumed(message))
    assert isinstance(ended, RetryTask)
    assert ended.retry_reason.startswith(AirflowTaskTimeout.__name__)
    assert "its waits included, took longer than its execution_timeout of 3600 s" in caplog.text
    assert Slow.stopped == before + 1


def test_the_engine_may_say_itself_that_the_time_was_up(channel: MemoryChannel) -> None:
    message = deferred(channel)
    again = failed(message, "execution timeout")
    ended = run(dag_of(execution_timeout=timedelta(hours=1)), "job", channel, should_retry=True, **again)
    assert ended.retry_reason.startswith(AirflowTaskTimeout.__name__)


def test_a_try_that_was_only_rescheduled_has_its_whole_execution_timeout(channel: MemoryChannel) -> None:
    dag = dag_of(execution_timeout=timedelta(hours=1))
    ended = run(dag, "job", channel, first_start=MOMENT - timedelta(hours=2), reschedules=3)
    assert isinstance(ended, DeferTask)
