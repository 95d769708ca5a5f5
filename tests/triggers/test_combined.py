import asyncio
from datetime import UTC, datetime

import pytest

from stannel.triggers.base import BaseTrigger, TaskSkippedEvent, TriggerEvent
from stannel.triggers.combined import AllOf, AnyOf, PartFailed
from stannel.triggers.temporal import DateTimeTrigger
from stannel.triggers.testing import FailureTrigger, SuccessTrigger

PAST = datetime(2020, 1, 1, tzinfo=UTC)


class Part(BaseTrigger):
    """Fires its payload after a while, and notes what happens to it."""

    def __init__(self, delay=0.0, payload=None, *, queue=None, broken_hooks=False):
        self.delay, self.payload, self.queue, self.broken_hooks = delay, payload, queue, broken_hooks
        self.notes = []

    def serialize(self):
        return "nowhere.Part", {}

    async def run(self):
        try:
            await asyncio.sleep(self.delay)
            if isinstance(self.payload, BaseException):
                raise self.payload
            yield self.payload if isinstance(self.payload, TriggerEvent) else TriggerEvent(self.payload)
            self.notes.append("went on")
        except asyncio.CancelledError:
            self.notes.append("cancelled")
            raise

    async def cleanup(self):
        await self._note("cleanup")

    async def on_kill(self):
        await self._note("on_kill")

    async def _note(self, what):
        self.notes.append(what)
        await asyncio.sleep(0)
        if self.broken_hooks:
            raise ValueError(what)


class Silent(Part):
    async def run(self):
        return
        yield


class Wrong(Part):
    async def run(self):
        yield "text"


async def life_of(trigger):
    """As a triggerer does it: up to the first event, then clean up."""
    try:
        async for event in trigger.run():
            return event.payload
    finally:
        await trigger.cleanup()


def test_the_first_that_fires_wins_and_the_others_are_stopped_and_cleaned_up(virtually):
    slow, quick = Part(100), Part(5, "quick")
    assert virtually(life_of(AnyOf([slow, quick]))) == ({"which": 1, "event": "quick"}, 5.0)
    assert slow.notes == ["cancelled", "cleanup"]
    assert quick.notes == ["cleanup"]


def test_the_winner_is_called_by_its_name(virtually):
    payload, _ = virtually(life_of(AnyOf({"slow": Part(100), "quick": Part(5, "x")})))
    assert payload == {"which": "quick", "event": "x"}


def test_of_those_that_fire_together_the_first_in_order_wins(virtually):
    payload, _ = virtually(life_of(AnyOf([Part(0, "a"), Part(0, "b")])))
    assert payload == {"which": 0, "event": "a"}


def test_all_are_waited_for_and_given_in_order(virtually):
    parts = [Part(9, "a"), Part(3, "b"), Part(6, "c")]
    assert virtually(life_of(AllOf(parts))) == (["a", "b", "c"], 9.0)
    assert [part.notes for part in parts] == [["cleanup"]] * 3


def test_all_with_names_are_given_by_name(virtually):
    payload, _ = virtually(life_of(AllOf({"x": Part(9, 1), "y": Part(3, 2)})))
    assert (payload, list(payload)) == ({"x": 1, "y": 2}, ["x", "y"])


def test_a_part_that_fired_is_cleaned_up_while_the_others_still_wait(virtually):
    quick, slow = Part(1), Part(10)
    seen = []

    async def work():
        asyncio.get_running_loop().call_later(5, lambda: seen.append(list(quick.notes)))
        await life_of(AllOf([quick, slow]))

    virtually(work())
    assert seen == [["cleanup"]]


def test_an_event_that_would_end_the_task_passes_as_the_state(virtually):
    payload, _ = virtually(life_of(AllOf([Part(0, TaskSkippedEvent(xcoms={"a": 1})), Part(0, 1)])))
    assert payload == ["skipped", 1]


@pytest.mark.parametrize("kind", [AnyOf, AllOf])
@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Part(1, ValueError("the reason")), "raised ValueError: the reason"),
        (Part(1, SystemExit(3)), "raised SystemExit: 3"),
        (Part(1, asyncio.CancelledError()), "was cancelled"),
        (Silent(), "ended without an event"),
        (Wrong(), "yielded 'text', which is no TriggerEvent"),
    ],
)
def test_a_part_that_fails_fails_the_whole_and_is_named(virtually, kind, part, words):
    other = Part(100)
    with pytest.raises(PartFailed) as caught:
        virtually(life_of(kind({"good": other, "bad": part})))
    assert "'bad'" in str(caught.value)
    assert words in str(caught.value)
    assert other.notes == ["cancelled", "cleanup"]


def test_the_error_of_a_part_is_kept_as_the_cause(virtually):
    with pytest.raises(PartFailed) as caught:
        virtually(life_of(AnyOf([FailureTrigger()])))
    assert isinstance(caught.value.__cause__, ValueError)


async def killed(trigger, after):
    """As a triggerer does it: the run is cancelled, then `on_kill`, then `cleanup`."""

    async def run():
        async for _ in trigger.run():
            pass

    running = asyncio.create_task(run())
    await asyncio.sleep(after)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await trigger.on_kill()
    await trigger.cleanup()


def test_a_kill_reaches_the_parts_that_still_wait(virtually):
    quick, slow, broken = Part(1), Part(100), Part(100, broken_hooks=True)
    virtually(killed(AllOf([quick, broken, slow]), after=10))
    assert quick.notes == ["cleanup"]
    assert slow.notes == broken.notes == ["cancelled", "on_kill", "cleanup"]


def test_a_kill_after_the_event_kills_nothing_more(virtually):
    slow = Part(100)

    async def work():
        trigger = AnyOf([slow, Part(1)])
        events = trigger.run()
        await anext(events)
        await trigger.on_kill()
        await events.aclose()
        await trigger.cleanup()

    virtually(work())
    assert slow.notes == ["cancelled", "cleanup"]


def test_a_kill_before_anything_ran_reaches_every_part(virtually):
    parts = [Part(), Part()]

    async def work():
        await AnyOf(parts).on_kill()

    virtually(work())
    assert [part.notes for part in parts] == [["on_kill"]] * 2


async def test_nothing_is_left_behind():
    await life_of(AnyOf([Part(1000), Part(0)]))
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_parts_know_for_whom_they_wait(virtually):
    part = Part()
    whole = AnyOf([part])
    whole.trigger_id, whole.timeout_after, whole.task_instance = 7, PAST, "instance"
    virtually(life_of(whole))
    assert (part.trigger_id, part.timeout_after, part.task_instance) == (7, PAST, "instance")


async def test_what_is_stored_holds_what_its_parts_store():
    stored = AnyOf({"at": DateTimeTrigger(PAST), "now": SuccessTrigger()}).serialize()
    assert stored == (
        "stannel.triggers.combined.AnyOf",
        {
            "triggers": [
                ["at", "stannel.triggers.temporal.DateTimeTrigger", {"moment": PAST, "end_from_trigger": False}],
                ["now", "stannel.triggers.testing.SuccessTrigger", {}],
            ]
        },
    )
    assert await life_of(AllOf(stored[1]["triggers"])) == {"at": PAST, "now": True}


@pytest.mark.parametrize(
    ("triggers", "error", "words"),
    [
        ([], ValueError, "At least one"),
        ({}, ValueError, "At least one"),
        ([[1, "stannel.triggers.testing.SuccessTrigger", {}]] * 2, ValueError, "same name"),
        (["text"], TypeError, "no trigger but a str"),
        ([["x", "nowhere.Trigger", {}]], PartFailed, "'x' .nowhere.Trigger. cannot be made"),
        ([Part(queue="a"), Part(queue="b")], ValueError, "queues a, b"),
    ],
)
def test_what_cannot_be_waited_for_together_is_refused(triggers, error, words):
    with pytest.raises(error, match=words):
        AnyOf(triggers)


def test_the_queue_of_a_part_is_that_of_the_whole():
    assert AnyOf([Part(queue="a"), Part()]).queue == "a"
    assert AnyOf([Part()]).queue is None
