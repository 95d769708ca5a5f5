"""Plain functions that wait: run again from their first line, with what they waited for and kept at hand."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

import pytest
from support.memory_channel import MemoryChannel, failed, resumed, run_beside

from stannel.protocol.requests import DeferTask, RetryTask, SkipDownstreamTasks, SucceedTask, TaskState
from stannel.sdk import DAG, all_of, any_of, keep, serde, task, wait_for
from stannel.sdk.exceptions import AirflowSkipException, TaskDeferralError, TaskDeferralTimeout
from stannel.sdk.operators import EmptyOperator, PythonOperator
from stannel.sdk.replay import LARGEST_HISTORY
from stannel.triggers.base import BaseTrigger, TriggerEvent
from stannel.triggers.file import FileTrigger
from stannel.triggers.temporal import DateTimeTrigger, TimeDeltaTrigger

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


class Order(BaseTrigger):
    """Waits for an order."""

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.number = number

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "shop.Order", {"number": self.number}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield TriggerEvent(self.number)


class Other(Order):
    """Waits for something else."""


@pytest.fixture
def channel() -> MemoryChannel:
    return MemoryChannel()


class Life:
    """A task of one function, lived through attempt by attempt."""

    def __init__(self, channel: MemoryChannel, function: Callable[..., Any], **options: Any) -> None:
        self.channel, self.options = channel, options
        with DAG("d") as self.dag:
            task(task_id="t")(function)()
        self.last: Any = None

    def start(self) -> Any:
        self.last = run_beside(self.dag, "t", self.channel, **self.options)
        return self.last

    def fire(self, event: Any = None) -> Any:
        return self._again(resumed(self._waits(), event))

    def fail(self, error: str, traceback: list[str] | None = None) -> Any:
        return self._again(failed(self._waits(), error, traceback))

    def _waits(self) -> DeferTask:
        assert isinstance(self.last, DeferTask)
        return self.last

    def _again(self, how: dict[str, Any]) -> Any:
        self.last = run_beside(self.dag, "t", self.channel, **self.options, **how)
        return self.last

    @property
    def returned(self) -> Any:
        assert isinstance(self.last, SucceedTask)
        return serde.decode(self.channel.returned("t"))


# --- waiting ---------------------------------------------------------------------------------------------------------
def test_an_async_function_gets_the_event_it_awaits(channel: MemoryChannel) -> None:
    async def ship() -> Any:
        return await wait_for(Order(7), timeout=timedelta(hours=1))

    life = Life(channel, ship)
    message = life.start()
    assert (message.classpath, message.trigger_kwargs) == ("shop.Order", {"number": 7})
    assert (message.next_method, message.trigger_timeout) == ("replay_callable", timedelta(hours=1))
    life.fire({"at": NOON})
    assert life.returned == {"at": NOON}


def test_a_plain_function_asks_for_the_result(channel: MemoryChannel) -> None:
    def ship() -> Any:
        return wait_for(Order(), timeout=60).result()

    life = Life(channel, ship)
    assert life.start().trigger_timeout == timedelta(seconds=60)
    life.fire("order")
    assert life.returned == "order"


def test_code_before_a_wait_runs_again_and_earlier_waits_give_what_they_gave(channel: MemoryChannel) -> None:
    lines: list[Any] = []

    async def ship() -> Any:
        lines.append("begin")
        first = await wait_for(Order(1))
        lines.append(first)
        second = await wait_for(Order(2))
        lines.append(second)
        return [first, second]

    life = Life(channel, ship)
    assert life.start().trigger_kwargs == {"number": 1}
    assert life.fire("a").trigger_kwargs == {"number": 2}
    life.fire("b")
    assert life.returned == ["a", "b"]
    assert lines == ["begin", "begin", "a", "begin", "a", "b"]


def test_what_a_function_holds_is_released_while_it_waits(channel: MemoryChannel) -> None:
    held: list[str] = []

    async def ship() -> None:
        held.append("taken")
        try:
            await wait_for(Order())
        finally:
            held.append("released")

    Life(channel, ship).start()
    assert held == ["taken", "released"]


def test_a_loop_of_waits_meets_each_of_its_own(channel: MemoryChannel) -> None:
    async def ship() -> Any:
        return [await wait_for(Order(number)) for number in range(4)]

    life = Life(channel, ship)
    life.start()
    for event in "abcd":
        life.fire(event)
    assert life.returned == ["a", "b", "c", "d"]


def test_the_operator_and_its_arguments_are_as_for_any_function(channel: MemoryChannel) -> None:
    def ship(number: int, ds: str) -> Any:
        return [number, ds, wait_for(Order(number)).result()]

    with DAG("d") as dag:
        PythonOperator(task_id="t", python_callable=ship, op_args=[7])
    message = run_beside(dag, "t", channel)
    run_beside(dag, "t", channel, **resumed(message, "e"))
    assert channel.returned("t") == [7, "2026-11-15", "e"]


def test_each_instance_of_a_mapped_task_waits_on_its_own(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task
        async def ship(number: int) -> Any:
            return [number, await wait_for(Order(number))]

        ship.expand(number=[5, 6])
    message = run_beside(dag, "ship", channel, map_index=1)
    assert message.trigger_kwargs == {"number": 6}
    run_beside(dag, "ship", channel, map_index=1, **resumed(message, "e"))
    assert channel.returned("ship", 1) == [6, "e"]


def test_a_branch_may_wait_before_it_decides(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task.branch
        async def choose() -> Any:
            return await wait_for(Order())

        choose() >> [EmptyOperator(task_id="left"), EmptyOperator(task_id="right")]
    message = run_beside(dag, "choose", channel)
    assert channel.sent(SkipDownstreamTasks) == []
    run_beside(dag, "choose", channel, **resumed(message, "left"))
    assert channel.sent(SkipDownstreamTasks)[0].tasks == ["right"]


def test_the_command_of_a_bash_task_may_be_waited_for(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task.bash
        def say() -> str:
            return f"echo {wait_for(Order()).result()}"

        say()
    message = run_beside(dag, "say", channel)
    run_beside(dag, "say", channel, **resumed(message, "hello"))
    assert channel.returned("say") == "hello"


def test_a_new_try_knows_nothing_of_the_one_before(channel: MemoryChannel) -> None:
    async def ship() -> None:
        await wait_for(Order(1))
        raise ValueError("bad")

    life = Life(channel, ship, should_retry=True)
    life.start()
    assert isinstance(life.fire(), RetryTask)
    ((waited_for,),) = life.start().next_kwargs["history"]
    assert waited_for.endswith("Order)")


# --- several at once -------------------------------------------------------------------------------------------------
def test_any_of_says_which_came_first_by_place_or_by_name(channel: MemoryChannel) -> None:
    async def ship() -> Any:
        by_place = await any_of(Order(1), DateTimeTrigger(NOON))
        by_name = await any_of(order=Order(1), late=DateTimeTrigger(NOON), timeout=5)
        return [by_place, by_name]

    life = Life(channel, ship)
    message = life.start()
    assert message.classpath == "stannel.triggers.combined.AnyOf"
    assert [part[:2] for part in message.trigger_kwargs["triggers"]] == [
        [0, "shop.Order"], [1, "stannel.triggers.temporal.DateTimeTrigger"],
    ]  # fmt: skip
    message = life.fire({"which": 1, "event": NOON})
    assert [part[0] for part in message.trigger_kwargs["triggers"]] == ["order", "late"]
    assert message.trigger_timeout == timedelta(seconds=5)
    life.fire({"which": "order", "event": "e"})
    assert life.returned == [(1, NOON), ("order", "e")]


def test_all_of_gives_what_each_fired(channel: MemoryChannel) -> None:
    async def ship() -> Any:
        return [await all_of(Order(1), Order(2)), await all_of(a=Order(1), b=FileTrigger("/f"))]

    life = Life(channel, ship)
    assert life.start().classpath == "stannel.triggers.combined.AllOf"
    life.fire(["x", "y"])
    life.fire({"a": "x", "b": True})
    assert life.returned == [["x", "y"], {"a": "x", "b": True}]


@pytest.mark.parametrize("wrong", [any_of, lambda: all_of(Order(), late=Order())])
def test_several_are_named_all_or_none(channel: MemoryChannel, wrong: Callable[[], Any]) -> None:
    def ship() -> None:
        with pytest.raises(TypeError, match="but not both and not none"):
            wrong()

    assert isinstance(Life(channel, ship).start(), SucceedTask)


# --- waits that fail -------------------------------------------------------------------------------------------------
def test_a_timeout_is_raised_at_the_wait_and_kept(channel: MemoryChannel) -> None:
    caught: list[str] = []

    async def ship() -> Any:
        try:
            await wait_for(Order(1), timeout=1)
        except TaskDeferralTimeout as error:
            caught.append(str(error))
        return await wait_for(Order(2))

    life = Life(channel, ship)
    life.start()
    assert life.fail("Trigger timeout").trigger_kwargs == {"number": 2}
    life.fire("e")
    assert life.returned == "e"
    assert caught == ["Trigger timeout"] * 2


def test_a_failed_trigger_is_raised_at_the_wait_and_shown(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    def ship() -> Any:
        try:
            return wait_for(Order()).result()
        except TaskDeferralError as error:
            return f"not today: {error}"

    life = Life(channel, ship)
    life.start()
    life.fail("Trigger failure", ["ValueError: no such shop"])
    assert life.returned == "not today: Trigger failure"
    assert "ValueError: no such shop" in caplog.text


def test_a_failed_wait_nobody_catches_fails_the_task(channel: MemoryChannel) -> None:
    life = Life(channel, lambda: wait_for(Order()).result(), should_retry=True)
    life.start()
    assert life.fail("Trigger timeout").retry_reason == "TaskDeferralTimeout: Trigger timeout"


def test_the_end_of_the_execution_timeout_cannot_be_caught_at_the_wait(channel: MemoryChannel) -> None:
    runs: list[int] = []

    def ship() -> Any:
        runs.append(1)
        try:
            return wait_for(Order()).result()
        except Exception:  # noqa: BLE001 - careless authors do this
            return "went on"

    life = Life(channel, ship, should_retry=True)
    life.start()
    assert life.fail("execution timeout").retry_reason.startswith("AirflowTaskTimeout")
    assert runs == [1]


def test_a_failure_without_the_history_still_fails_the_task(channel: MemoryChannel) -> None:
    life = Life(channel, lambda: wait_for(Order()).result(), should_retry=True)
    life.start()
    bare = {"next_method": "__fail__", "next_kwargs": {"error": "Trigger failure", "traceback": None}}
    assert life._again(bare).retry_reason == "TaskDeferralError: Trigger failure"


# --- steps that are done once ----------------------------------------------------------------------------------------
def test_a_kept_step_is_done_once_and_gives_the_same_again(channel: MemoryChannel) -> None:
    charged: list[int] = []

    def charge(amount: int, *, currency: str) -> Any:
        charged.append(amount)
        return {"id": len(charged), "at": NOON, "in": currency}

    async def look() -> str:
        await asyncio.sleep(0)
        charged.append(0)
        return "seen"

    async def ship() -> Any:
        receipt = await keep(charge, 7, currency="EUR")
        seen = await keep(look)
        first = await wait_for(Order(1))
        second = await wait_for(Order(2))
        return [receipt, seen, first, second]

    life = Life(channel, ship)
    life.start()
    life.fire("a")
    life.fire("b")
    assert life.returned == [{"id": 1, "at": NOON, "in": "EUR"}, "seen", "a", "b"]
    assert charged == [7, 0]


def test_a_plain_function_keeps_plain_and_async_steps(channel: MemoryChannel) -> None:
    calls: list[str] = []

    async def look() -> str:
        await asyncio.sleep(0)
        calls.append("look")
        return "seen"

    def ship() -> Any:
        return [keep(calls.append, "plain").result(), keep(look).result(), wait_for(Order()).result()]

    life = Life(channel, ship)
    life.start()
    life.fire("e")
    assert life.returned == [None, "seen", "e"]
    assert calls == ["plain", "look"]


def test_a_step_gives_the_same_types_the_first_time_as_later(channel: MemoryChannel) -> None:
    seen: list[Any] = []

    class Text(str):
        __slots__ = ()

    async def ship() -> None:
        seen.append(type(await keep(lambda: Text("a"))))
        await wait_for(Order())

    life = Life(channel, ship)
    life.start()
    life.fire()
    assert seen == [str, str]


def test_an_error_of_a_step_is_kept_with_its_class(channel: MemoryChannel) -> None:
    calls: list[int] = []

    def charge() -> None:
        calls.append(1)
        raise ZeroDivisionError("nothing to divide by", 0)

    async def ship() -> Any:
        try:
            await keep(charge)
        except ZeroDivisionError as error:
            args = error.args
        await wait_for(Order())
        return list(args)

    life = Life(channel, ship)
    life.start()
    life.fire()
    assert life.returned == ["nothing to divide by", 0]
    assert calls == [1]


def test_an_error_that_cannot_be_made_again_comes_back_with_its_words(channel: MemoryChannel) -> None:
    class Refused(Exception):
        def __init__(self, order: int, lock: object) -> None:
            super().__init__(f"order {order} is refused")

    def charge() -> None:
        raise Refused(7, object())

    words: list[str] = []

    async def ship() -> None:
        try:
            await keep(charge)
        except Exception as error:  # noqa: BLE001 - its class is the question
            words.append(f"{type(error).__name__}: {error}")
        await wait_for(Order())

    life = Life(channel, ship)
    life.start()
    life.fire()
    assert words[0] == "Refused: order 7 is refused"
    assert words[1].startswith("AirflowException: ")
    assert words[1].endswith("Refused: order 7 is refused")


def test_a_step_may_skip_the_task(channel: MemoryChannel) -> None:
    def stop() -> None:
        raise AirflowSkipException("nothing to ship")

    ended = Life(channel, lambda: keep(stop).result()).start()
    assert isinstance(ended, TaskState)
    assert ended.state == "skipped"


def test_what_a_step_returns_must_be_able_to_travel(channel: MemoryChannel, caplog: pytest.LogCaptureFixture) -> None:
    assert Life(channel, lambda: keep(object).result()).start().state == "failed"
    assert "what keep(object) returned" in caplog.text


def test_too_much_to_keep_is_refused_with_the_name_of_the_largest(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    def everything() -> str:
        return "x" * LARGEST_HISTORY

    def ship() -> None:
        keep(int).result()
        keep(everything).result()
        wait_for(Order()).result()

    assert Life(channel, ship).start().state == "failed"
    assert "the largest part is keep(" in caplog.text
    assert "everything)" in caplog.text


# --- functions that do not do the same again -------------------------------------------------------------------------
def different(changed: Callable[[], Any]) -> Callable[[], Any]:
    """A function that waits for an order the first time and does something else the second."""
    runs: list[int] = []

    def ship() -> Any:
        runs.append(1)
        if len(runs) == 1:
            keep(int).result()
            return wait_for(Order()).result()
        return changed()

    return ship


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (lambda: None, ("keep(int)", "step 1 of 2", "the function ended now")),
        (lambda: keep(str).result(), ("keep(int)", "it came to keep(str) now")),
        (lambda: [keep(int).result(), wait_for(Other()).result()], ("Order)", "step 2 of 2", "Other) now")),
        (lambda: keep(int).result(), ("Order)", "step 2 of 2", "the function ended now")),
    ],
)
def test_a_function_that_does_something_else_the_second_time_fails_with_what_was_expected(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture, changed: Callable[[], Any], words: tuple[str, ...]
) -> None:
    life = Life(channel, different(changed))
    life.start()
    assert life.fire().state == "failed"
    assert "must meet the same waits and steps in the same order" in caplog.text
    for word in words:
        assert word in caplog.text


def test_a_mismatch_that_was_caught_fails_the_task_all_the_same(channel: MemoryChannel) -> None:
    def careless() -> str:
        try:
            keep(str).result()
        except Exception:  # noqa: BLE001 - careless authors do this
            return "all is well"
        return "kept"

    life = Life(channel, different(careless))
    life.start()
    assert life.fire().state == "failed"


def test_a_function_that_swallows_its_deferral_fails(channel: MemoryChannel, caplog: pytest.LogCaptureFixture) -> None:
    def ship() -> str:
        try:
            return str(wait_for(Order()).result())
        except BaseException:  # noqa: BLE001 - careless authors do this
            return "no matter"

    assert Life(channel, ship).start().state == "failed"
    assert "Let TaskDeferred pass" in caplog.text


# --- where it works --------------------------------------------------------------------------------------------------
def test_waiting_outside_of_a_task_says_where_it_works() -> None:
    for wait in (lambda: wait_for(Order()), lambda: keep(int), lambda: any_of(Order()), lambda: all_of(Order())):
        with pytest.raises(RuntimeError, match="works only while the function of a @task"):
            wait()


def test_only_triggers_can_be_waited_for(channel: MemoryChannel) -> None:
    def ship() -> None:
        with pytest.raises(TypeError, match="an instance of BaseTrigger"):
            wait_for(timedelta(hours=1))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="keep\\(\\) takes a function"):
            keep(7)  # type: ignore[arg-type]

    assert isinstance(Life(channel, ship).start(), SucceedTask)


async def _gathered() -> None:
    await asyncio.gather(keep(int), keep(int))


async def _in_a_task() -> None:
    await asyncio.create_task(_waits())


async def _waits() -> None:
    await wait_for(Order())


def _in_a_thread() -> None:
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            wait_for(Order()).result()
        except BaseException as error:  # noqa: BLE001 - raised again outside of the thread
            errors.append(error)

    thread = Thread(target=wait)
    thread.start()
    thread.join()
    raise errors[0]


@pytest.mark.parametrize("function", [_gathered, _in_a_task, _in_a_thread])
def test_waits_side_by_side_are_refused_because_their_order_is_not_known(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture, function: Callable[[], Any]
) -> None:
    assert Life(channel, function).start().state == "failed"
    assert "must be awaited by the task's function itself" in caplog.text


def test_a_wait_inside_a_step_is_refused(channel: MemoryChannel, caplog: pytest.LogCaptureFixture) -> None:
    assert Life(channel, lambda: keep(lambda: wait_for(Order()).result()).result()).start().state == "failed"
    assert "wait before or after the step" in caplog.text


def test_a_wait_that_nobody_awaited_is_noticed(channel: MemoryChannel, caplog: pytest.LogCaptureFixture) -> None:
    async def ship() -> None:
        wait_for(TimeDeltaTrigger(timedelta(hours=1)))

    with caplog.at_level(logging.WARNING):
        assert isinstance(Life(channel, ship).start(), SucceedTask)
    assert "TimeDeltaTrigger) was neither awaited nor asked for its result()" in caplog.text
