"""What is true of every trigger that comes with the engine."""

from datetime import UTC, datetime, timedelta

import pytest

from stannel.sdk import serde
from stannel.triggers.callback import CallbackTrigger
from stannel.triggers.combined import AllOf, AnyOf
from stannel.triggers.external_task import DagStateTrigger, WorkflowTrigger
from stannel.triggers.file import DirectoryFileDeleteTrigger, FileDeleteTrigger, FileTrigger
from stannel.triggers.http import HttpEventTrigger, HttpSensorTrigger, HttpTrigger
from stannel.triggers.loading import load_trigger
from stannel.triggers.temporal import DateTimeTrigger, TimeDeltaTrigger
from stannel.triggers.testing import FailureTrigger, SuccessTrigger

MOMENT = datetime(2030, 1, 1, tzinfo=UTC)

EVERY = [
    CallbackTrigger("a.b", {"x": 1}),
    AnyOf([SuccessTrigger(), DateTimeTrigger(MOMENT)]),
    AllOf({"one": FileTrigger("a"), "both": AnyOf([DateTimeTrigger(MOMENT)])}),
    DagStateTrigger("d", {"success"}, run_ids=("r",), poll_interval=1.5),
    WorkflowTrigger("d", logical_dates=[MOMENT], external_task_ids={"t"}, failed_states=["failed"], soft_fail=True),
    DirectoryFileDeleteTrigger(directory="d", filename="f", poke_interval=1.5),
    FileDeleteTrigger("f", 1.5),
    FileTrigger("f", True, 1.5),
    HttpEventTrigger("c", str, "GET", "e", {"h": "1"}, {"d": 1}, {"timeout": 1}, "a.b", 1.5),
    HttpSensorTrigger("e", "c", "HEAD", {"h": "1"}, {"d": 1}, {"timeout": 1}, 1.5),
    HttpTrigger("c", "a.Auth", "PUT", "e", {"h": "1"}, "text", {"timeout": 1}),
    DateTimeTrigger(MOMENT, end_from_trigger=True),
    TimeDeltaTrigger(timedelta(hours=1)),
    FailureTrigger(),
    SuccessTrigger(),
]


@pytest.mark.parametrize("trigger", EVERY, ids=lambda trigger: type(trigger).__name__)
def test_a_trigger_that_was_stored_and_made_again_is_the_same(trigger):
    classpath, kwargs = trigger.serialize()
    again = load_trigger(classpath, serde.decode(serde.encode(kwargs)))
    assert again.serialize() == (classpath, kwargs)
    assert isinstance(trigger, type(again))
