"""Sensors wait as long as they should, and end as their author said."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from support.memory_channel import MOMENT, MemoryChannel, run

from stannel.protocol.requests import RescheduleTask, RetryTask, SucceedTask, TaskState
from stannel.sdk import DAG, BaseSensorOperator, PokeReturnValue, task, timezone
from stannel.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
)
from stannel.sdk.sensors.base import jitter_of, poke_mode_only, seconds_until_next_poke


@pytest.fixture
def channel() -> MemoryChannel:
    return MemoryChannel()


class Given(BaseSensorOperator):
    """Gives (or raises) the answers one after the other; the last one for ever."""

    def __init__(self, *, answers: list[Any], **kwargs: Any) -> None:
        kwargs.setdefault("task_id", "wait")
        kwargs.setdefault("poke_interval", 0)
        super().__init__(**kwargs)
        self.answers = answers
        self.looks = 0

    def poke(self, context: Any) -> Any:
        self.looks += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


def outcome(channel: MemoryChannel, *answers: Any, attempt: dict[str, Any] | None = None, **settings: Any) -> Any:
    """How one attempt at a sensor with these answers ends."""
    with DAG("d") as dag:
        Given(answers=list(answers), **settings)
    return run(dag, "wait", channel, **(attempt or {}))


# --- the wait between two looks --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("number", "interval", "options", "expected"),
    [
        # Without back-off: the interval, or what is left.
        (1, 60, {}, 60),
        (9, 60, {}, 60),
        (1, 60, {"left": 10}, 10),
        (1, 60, {"left": -1}, 0),
        (1, 0, {}, 0),
        # The longest wait is a limit of the back-off only.
        (1, 60, {"longest": 10}, 60),
        # With back-off: from the half to the whole of an interval that doubles.
        (1, 60, {"backoff": True}, 30),
        (2, 60, {"backoff": True}, 60),
        (3, 60, {"backoff": True}, 120),
        (5, 60, {"backoff": True}, 480),
        (1, 60, {"backoff": True, "jitter": 0.5}, 45),
        (3, 60, {"backoff": True, "jitter": 0.25}, 150),
        (5, 60, {"backoff": True, "longest": 300}, 300),
        (5, 60, {"backoff": True, "longest": 300, "left": 7}, 7),
        (5, 0.25, {"backoff": True}, 2),
        (100_000, 60, {"backoff": True, "longest": 300}, 300),
    ],
)
def test_the_wait_after_the_nth_look(number: int, interval: float, options: dict[str, Any], expected: float) -> None:
    options = {"backoff": False, "jitter": 0.0, "longest": None, "left": 1e9} | options
    assert seconds_until_next_poke(number, interval, **options) == expected


def test_the_jitter_is_the_same_for_the_same_look_and_spread_over_others() -> None:
    assert jitter_of("d", "t", "r", -1, 1) == jitter_of("d", "t", "r", -1, 1)
    spread = [jitter_of("d", "t", "r", index, 1) for index in range(200)]
    assert len(set(spread)) == 200
    assert 0 <= min(spread) < 0.1
    assert 0.9 < max(spread) < 1
    assert jitter_of("d", "t", "r", -1, 1) != jitter_of("d", "t", "other", -1, 1)


# --- arguments -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "wrong",
    [
        {"poke_interval": -1},
        {"poke_interval": "soon"},
        {"poke_interval": True},
        {"poke_interval": float("nan")},
        {"timeout": timedelta(seconds=-1)},
        {"timeout": "never"},
        {"max_wait": -1},
        {"mode": "nap"},
        {"soft_fail": True, "never_fail": True},
    ],
)
def test_arguments_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="task 'wait'"):
        Given(answers=[True], **wrong)


def test_durations_may_be_numbers_or_timedeltas() -> None:
    sensor = Given(answers=[True], poke_interval=timedelta(minutes=1), timeout=2.5, max_wait=30)
    assert (sensor.poke_interval, sensor.timeout, sensor.max_wait) == (60, 2.5, timedelta(seconds=30))


def test_the_timeout_is_the_engines_unless_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STANNEL__SENSORS__DEFAULT_TIMEOUT", raising=False)
    assert Given(answers=[True]).timeout == 7 * 24 * 3600
    monkeypatch.setenv("STANNEL__SENSORS__DEFAULT_TIMEOUT", "90.0")
    assert Given(answers=[True]).timeout == 90
    assert Given(answers=[True], timeout=0).timeout == 0


def test_a_class_may_insist_on_poke_mode() -> None:
    @poke_mode_only
    class Remembers(Given):
        pass

    assert Remembers(answers=[True]).mode == "poke"
    with pytest.raises(ValueError, match="'poke' only"):
        Remembers(answers=[True], mode="reschedule")
    with pytest.raises(ValueError, match="'poke' only"):
        Remembers(answers=[True]).mode = "reschedule"
    assert Given(answers=[True], mode="reschedule").reschedule
    with pytest.raises(ValueError, match="BaseSensorOperator"):
        poke_mode_only(str)  # type: ignore[type-var]


# --- poke mode -------------------------------------------------------------------------------------------------------
def test_it_looks_until_it_is_true_and_leaves_what_it_found(channel: MemoryChannel) -> None:
    assert isinstance(
        outcome(channel, False, None, PokeReturnValue(False, "no"), PokeReturnValue(True, 7)), SucceedTask
    )
    assert channel.returned("wait") == 7


def test_plain_true_leaves_nothing(channel: MemoryChannel) -> None:
    assert isinstance(outcome(channel, True), SucceedTask)
    assert channel.xcoms == {}


def test_a_sensor_can_be_tried_by_hand() -> None:
    sensor = Given(answers=[False, PokeReturnValue(True, 1)])
    assert sensor.execute({}) == 1
    assert sensor.looks == 2


def test_a_timeout_fails_whatever_retries_remain(channel: MemoryChannel) -> None:
    ended = outcome(channel, False, timeout=0, attempt={"should_retry": True})
    assert ended == TaskState(state="failed", end_date=ended.end_date)


def test_the_timeout_is_looked_at_after_a_look_only(channel: MemoryChannel) -> None:
    assert isinstance(outcome(channel, True, timeout=0), SucceedTask)


def test_a_timeout_skips_a_soft_sensor(channel: MemoryChannel) -> None:
    assert outcome(channel, False, timeout=0, soft_fail=True).state == "skipped"


def test_its_own_timeout_fails_a_sensor_whose_looks_never_fail(channel: MemoryChannel) -> None:
    assert outcome(channel, False, timeout=0, never_fail=True).state == "failed"


FAILED, RETRY, SKIPPED, DONE = "failed", "up_for_retry", "skipped", "done"


@pytest.mark.parametrize(
    ("raised", "plain", "soft_fail", "never_fail", "silent_fail"),
    [
        (AirflowSensorTimeout("own"), FAILED, SKIPPED, SKIPPED, FAILED),
        (AirflowFailException("no"), FAILED, SKIPPED, SKIPPED, FAILED),
        (AirflowSkipException("skip"), SKIPPED, SKIPPED, SKIPPED, SKIPPED),
        (AirflowException("hm"), RETRY, RETRY, SKIPPED, DONE),
        (ValueError("hm"), RETRY, RETRY, SKIPPED, DONE),
    ],
)
def test_what_a_failing_look_means(
    channel: MemoryChannel, raised: Exception, plain: str, soft_fail: str, never_fail: str, silent_fail: str
) -> None:
    def end(**settings: bool) -> str:
        ended = outcome(channel, raised, True, attempt={"should_retry": True}, **settings)
        return DONE if isinstance(ended, SucceedTask) else RETRY if isinstance(ended, RetryTask) else str(ended.state)

    assert [end(), end(soft_fail=True), end(never_fail=True), end(silent_fail=True)] == [
        plain, soft_fail, never_fail, silent_fail,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("soft", "state"), [({}, RETRY), ({"soft_fail": True}, SKIPPED), ({"never_fail": True}, SKIPPED)]
)
def test_the_tasks_own_time_limit_between_two_looks(channel: MemoryChannel, soft: dict[str, bool], state: str) -> None:
    stopped = []

    class Noting(Given):
        def on_kill(self) -> None:
            stopped.append(self.task_id)

    with DAG("d") as dag:
        Noting(answers=[False], poke_interval=60, execution_timeout=timedelta(milliseconds=50), **soft)
    ended = run(dag, "wait", channel, should_retry=True)
    assert ended.state == state
    assert stopped == ["wait"]


# --- reschedule mode -------------------------------------------------------------------------------------------------
def test_a_rescheduled_sensor_ends_and_asks_to_be_started_again(channel: MemoryChannel) -> None:
    before = timezone.utcnow()
    ended = outcome(channel, False, mode="reschedule", poke_interval=60)
    assert isinstance(ended, RescheduleTask)
    assert before + timedelta(seconds=60) <= ended.reschedule_date <= timezone.utcnow() + timedelta(seconds=60)
    assert isinstance(outcome(channel, PokeReturnValue(True, 3), mode="reschedule"), SucceedTask)
    assert channel.returned("wait") == 3


def test_the_timeout_counts_from_the_first_start_of_the_try(channel: MemoryChannel) -> None:
    earlier = {"first_start": MOMENT - timedelta(seconds=90), "reschedules": 3, "should_retry": True}
    waits = outcome(channel, False, mode="reschedule", timeout=100, attempt=earlier)
    assert isinstance(waits, RescheduleTask)
    assert outcome(channel, False, mode="reschedule", timeout=89, attempt=earlier).state == "failed"
    assert outcome(channel, False, mode="reschedule", timeout=89, soft_fail=True, attempt=earlier).state == "skipped"
    assert isinstance(outcome(channel, True, mode="reschedule", timeout=89, attempt=earlier), SucceedTask)


def test_it_comes_back_for_a_last_look_when_the_timeout_is_due(channel: MemoryChannel) -> None:
    earlier = {"first_start": MOMENT - timedelta(seconds=90), "reschedules": 3}
    ended = outcome(channel, False, mode="reschedule", timeout=100, poke_interval=3600, attempt=earlier)
    assert ended.reschedule_date <= timezone.utcnow() + timedelta(seconds=10)


def test_the_back_off_goes_on_in_the_next_process(channel: MemoryChannel) -> None:
    settings = {"mode": "reschedule", "poke_interval": 10, "exponential_backoff": True}

    def pause(reschedules: int) -> float:
        before = timezone.utcnow()
        ended = outcome(channel, False, attempt={"reschedules": reschedules}, **settings)
        return float((ended.reschedule_date - before).total_seconds())

    assert 5 <= pause(0) < 11
    assert 80 <= pause(4) < 161


def test_any_task_may_ask_to_be_started_again(channel: MemoryChannel) -> None:
    noted = []
    with DAG("d") as dag:

        @task(on_success_callback=noted.append, on_failure_callback=noted.append, on_retry_callback=noted.append)
        def later() -> None:
            raise AirflowRescheduleException(MOMENT)

        later()
    ended = run(dag, "later", channel, should_retry=True)
    assert isinstance(ended, RescheduleTask)
    assert ended.reschedule_date == MOMENT
    assert noted == [], "a task that will go on has not ended"


# --- @task.sensor ----------------------------------------------------------------------------------------------------
@pytest.fixture
def answers() -> Iterator[Any]:
    return iter([False, 0, PokeReturnValue(True, "found")])


def test_a_function_can_be_a_sensor(channel: MemoryChannel, answers: Iterator[Any]) -> None:
    with DAG("d") as dag:

        @task.sensor(poke_interval=0, timeout=60, mode="poke")
        def arrived(name: str, ds: str | None = None) -> Any:
            assert (name, ds) == ("a.csv", "2026-11-15")
            return next(answers)

        arrived("{{ params.name }}.csv")
    dag.params["name"] = "a"
    assert isinstance(run(dag, "arrived", channel), SucceedTask)
    assert channel.returned("arrived") == "found"


def test_a_sensor_function_can_be_mapped(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task.sensor(mode="reschedule")
        def arrived(number: int) -> bool:
            return number > 1

        arrived.expand(number=[1, 2])
    assert isinstance(run(dag, "arrived", channel, map_index=0), RescheduleTask)
    assert isinstance(run(dag, "arrived", channel, map_index=1), SucceedTask)


def test_a_sensor_may_be_async() -> None:
    class Later(BaseSensorOperator):
        async def poke(self, context: Any) -> bool:  # type: ignore[override]
            return bool(context.setdefault("looked", []).append(1) or len(context["looked"]) > 1)

    context: dict[str, Any] = {}
    Later(task_id="later", poke_interval=0).execute(context)
    assert context["looked"] == [1, 1]
