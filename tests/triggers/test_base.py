import os
import subprocess
import sys
from collections import UserDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from stannel.triggers.base import (
    BaseEventTrigger,
    BaseTaskEndEvent,
    BaseTrigger,
    StartTriggerArgs,
    TaskFailedEvent,
    TaskFailureEvent,
    TaskSkippedEvent,
    TaskSuccessEvent,
    TriggerEvent,
)


class Plain(BaseTrigger):
    """As authors write them: no super().__init__()."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def serialize(self):
        return "a.b.Plain", self.values

    async def run(self):
        yield TriggerEvent()


class Watching(BaseEventTrigger):
    def serialize(self):
        return "a.b.Watching", {}

    async def run(self):
        yield TriggerEvent()


def test_events_are_equal_by_what_they_carry():
    assert TriggerEvent({"a": 1}) == TriggerEvent({"a": 1})
    assert TriggerEvent(1) != TriggerEvent(2)
    assert TaskSuccessEvent() == TaskSuccessEvent()
    assert TaskSuccessEvent(xcoms={"a": 1}) != TaskSuccessEvent(xcoms={"a": 2})
    assert TaskSuccessEvent() != TriggerEvent("success")


def test_an_event_may_say_more_than_its_payload_and_differs_by_it():
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    event = TriggerEvent(1, identity="a/1", key="eu", extra={"rows": 3}, timestamp=moment)
    assert (event.identity, event.key, event.extra, event.timestamp) == ("a/1", "eu", {"rows": 3}, moment)
    assert event != TriggerEvent(1)
    assert TriggerEvent(1, identity="a/1") != TriggerEvent(1, identity="a/2")


def test_an_event_shows_its_payload():
    assert repr(TriggerEvent("x")) == "TriggerEvent<'x'>"
    assert repr(TaskSuccessEvent()) == "TaskSuccessEvent<'success'>"


@pytest.mark.parametrize(
    ("kind", "state"), [(TaskSuccessEvent, "success"), (TaskFailedEvent, "failed"), (TaskSkippedEvent, "skipped")]
)
def test_the_payload_of_an_end_event_is_the_state_it_ends_in(kind: type[BaseTaskEndEvent], state: str):
    event = kind(xcoms={"key": 1})
    assert (event.payload, event.task_instance_state, event.xcoms) == (state, state, {"key": 1})
    assert type(event.payload) is str


def test_an_end_event_takes_no_payload():
    with pytest.raises(ValueError, match="Param 'payload' not supported for this class"):
        TaskSuccessEvent(payload=1)
    with pytest.raises(TypeError, match="no argument 'xcom'"):
        TaskSuccessEvent(xcom={})


def test_the_failed_event_has_the_name_that_documents_give_it_too():
    assert TaskFailureEvent is TaskFailedEvent


def test_a_trigger_needs_run_and_serialize():
    with pytest.raises(TypeError, match="abstract"):
        BaseTrigger()  # type: ignore[abstract]


def test_a_trigger_that_never_calls_its_base_constructor_has_every_attribute():
    trigger = Plain()
    assert (trigger.task_instance, trigger.task, trigger.trigger_id, trigger.task_id) == (None, None, None, None)
    assert (trigger.timeout_after, trigger.triggerer_job_id, trigger.queue) == (None, None, None)
    assert (trigger.template_fields, trigger.template_ext) == ((), ())
    assert trigger.trigger_queue_inherited_from_task is True


def test_a_trigger_logs_under_its_own_name():
    assert Plain().log.name == "stannel.triggers.Plain"


async def test_the_hooks_of_a_trigger_may_be_left_out():
    await Plain().cleanup()
    await Plain().on_kill()


def test_a_trigger_shows_what_it_was_made_of():
    assert repr(Plain(n=1, name="x")) == "<a.b.Plain n=1, name='x'>"
    assert repr(Plain()) == "<a.b.Plain>"


def test_a_trigger_does_not_show_secrets():
    shown = repr(Plain(encrypted__key="k1", password="k2", nested={"token": "k3", "encrypted__more": "k4"}, open="k5"))
    assert [secret for secret in ("k1", "k2", "k3", "k4", "k5") if secret in shown] == ["k5"]


@dataclass
class Operator:
    task_id: str = "t"
    template_fields: tuple[str, ...] = ("path", "other", "absent")
    template_ext: tuple[str, ...] = (".sql",)
    start_trigger_args: StartTriggerArgs | None = None


@dataclass
class Instance:
    task: Operator | None = field(default_factory=Operator)


def test_only_fields_that_operator_arguments_and_trigger_share_are_templates():
    trigger = Plain()
    trigger.path, trigger.other = "{{ ds }}", "{{ ds }}"
    args = StartTriggerArgs("a.b.Plain", "resume", {"path": "{{ ds }}", "absent": "{{ ds }}"})
    trigger.task_instance = Instance(Operator(start_trigger_args=args))
    assert (trigger.task_id, trigger.template_fields, trigger.template_ext) == ("t", ("path",), (".sql",))


def test_a_task_instance_that_knows_no_operator_changes_nothing():
    trigger = Plain()
    trigger.task_instance = Instance(None)
    assert (trigger.task, trigger.task_id, trigger.template_fields) == (None, None, ())


class OnlySome(UserDict[str, Any]):
    """A context in which most names are dear."""

    def __getitem__(self, name: str) -> Any:
        if name == "dear":
            raise AssertionError("nobody asked for this")
        return super().__getitem__(name)


def test_template_fields_are_rendered_however_deep_and_read_only_what_they_name():
    trigger = Plain()
    trigger.template_fields = ("path", "nested", "absent", "number")
    trigger.path, trigger.number = "/data/{{ ds }}", 7
    trigger.nested = {"a": ["{{ ds }}", ("{{ n + 1 }}", "plain")]}
    trigger.untouched = "{{ ds }}"
    trigger.render_template_fields(OnlySome(ds="2030-01-01", n=1, dear=0))
    assert trigger.path == "/data/2030-01-01"
    assert trigger.nested == {"a": ["2030-01-01", ("2", "plain")]}
    assert (trigger.number, trigger.untouched) == (7, "{{ ds }}")


def test_an_event_trigger_keeps_its_own_queue():
    assert Watching(queue="q").queue == "q"
    assert Watching().queue is None
    assert Watching().trigger_queue_inherited_from_task is False


def test_an_event_trigger_shares_nothing_unless_it_says_so():
    trigger = Watching()
    assert trigger.shared_stream_key() is None
    assert trigger.asset_state_store is None
    for hook in (trigger.open_shared_stream, trigger.create_shared_stream_producer, trigger.filter_shared_stream):
        with pytest.raises(NotImplementedError, match="Watching"):
            hook({})


def test_equal_triggers_have_equal_hashes_whatever_the_order_of_their_arguments():
    one = BaseEventTrigger.hash("a.b.C", {"x": {"p": 1, "q": [1]}, "y": {3, 1, 2}})
    assert one == BaseEventTrigger.hash("a.b.C", {"y": {2, 3, 1}, "x": {"q": [1], "p": 1}})
    assert one != BaseEventTrigger.hash("a.b.C", {"x": {"p": 1, "q": [2]}, "y": {3, 1, 2}})
    assert one != BaseEventTrigger.hash("a.b.D", {"x": {"p": 1, "q": [1]}, "y": {3, 1, 2}})


def test_the_hash_of_a_trigger_is_the_same_in_every_process():
    program = "from stannel.triggers.base import BaseEventTrigger as B; print(B.hash('a', {'s': {'x', 'y', 'z'}}))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1
