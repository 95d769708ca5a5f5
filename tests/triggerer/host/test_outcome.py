"""What is told about a trigger: its name, its event, and the lines of its error that are its author's."""

from pathlib import Path
from typing import Any

import pytest

from stannel.errors import NotSerializable, StannelError
from stannel.model.states import TaskState
from stannel.model.trigger import CancelReason, Event
from stannel.protocol.triggering import Waiter
from stannel.triggerer.host import outcome
from stannel.triggers.base import TaskSkippedEvent, TaskSuccessEvent, TriggerEvent
from stannel.triggers.loading import find_trigger


def test_a_trigger_is_named_after_the_task_that_waits():
    assert outcome.name_of(7, None) == "ID 7"
    task = outcome.task_of(Waiter("ti", "d", "r", "t", 3, 2))
    assert outcome.name_of(7, task) == "d/r/t/3/2 (ID 7)"


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (TriggerEvent(), Event()),
        (TriggerEvent({"a": [1]}), Event(payload={"a": [1]})),
        (TaskSuccessEvent(), Event(payload="success", ends=TaskState.SUCCESS)),
        (TaskSkippedEvent(xcoms={"a": 1}), Event(payload="skipped", ends=TaskState.SKIPPED, xcoms={"a": 1})),
    ],
)
def test_events_are_sent_as_what_they_are(given: TriggerEvent, sent: Event):
    assert outcome.event_of(given) == sent


@pytest.mark.parametrize("given", [None, {"payload": 1}, TriggerEvent])
def test_what_is_no_event_is_refused(given: Any):
    with pytest.raises(outcome.NotAnEvent):
        outcome.event_of(given)


def test_the_place_inside_a_payload_that_cannot_be_stored_is_named():
    with pytest.raises(NotSerializable, match=r"\['a'\]\[0\]"):
        outcome.event_of(TriggerEvent({"a": [object()]}))


def test_every_reason_to_stop_has_its_sentence():
    assert set(outcome.CANCEL_TEXTS) == set(CancelReason)


def test_a_long_event_is_shown_short_and_one_that_cannot_be_shown_does_no_harm():
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert len(outcome.shown(TriggerEvent("x" * 10_000))) < 600
    assert "cannot be shown" in outcome.shown(TriggerEvent(Shy()))


def error_of(function: Any) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the tests look at what it was
        function()
    return caught.value


def test_a_traceback_begins_with_the_authors_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "broken_trigger_module.py").write_text("import json\njson.loads('{')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    lines = outcome.traceback_lines(error_of(lambda: find_trigger("broken_trigger_module.Trigger")))
    assert lines[0] == "Traceback (most recent call last):"
    files = [line for line in lines if line.startswith("  File ")]
    assert any("broken_trigger_module.py" in line for line in files)
    assert not any("frozen importlib" in line for line in files[:1])


def test_a_sentence_of_the_engine_stands_alone():
    def refuse() -> None:
        raise StannelError("It is so.")

    error = error_of(refuse)
    error.__traceback__ = None
    assert outcome.traceback_lines(error) == ["stannel.errors.StannelError: It is so."]


def test_an_endless_traceback_is_cut():
    def forever(depth: int) -> None:
        if depth == 0:
            raise ValueError("at the bottom\n" * 1000)
        forever(depth - 1)

    lines = outcome.traceback_lines(error_of(lambda: forever(300)))
    assert len(lines) <= 201
    assert "..." in lines


def test_the_state_of_an_event_travels_as_plain_json():
    assert outcome.event_of(TriggerEvent("x", state={"cursor": [1, "a"], "old": None})).state == {
        "cursor": [1, "a"],
        "old": None,
    }


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ([1], "is a mapping"),
        ({"": 1}, "1 to 512 characters"),
        ({7: 1}, "is a text"),
        ({"k": float("nan")}, "'k' cannot be set"),
        ({"k": (1, 2)}, "'k' cannot be set"),
        ({"k": object()}, "'k' cannot be set"),
    ],
)
def test_a_state_that_cannot_be_kept_makes_it_no_event(state, words):
    with pytest.raises(outcome.NotAnEvent, match=words):
        outcome.event_of(TriggerEvent("x", state=state))
