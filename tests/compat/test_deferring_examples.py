"""The examples that authors learn deferring from, as they are written: they load, defer and go on."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.deferring_examples import A_SECRET, A_TRIGGER, ALWAYS_DEFERRED, BOTH_MODES
from support.memory_channel import MemoryChannel, resumed, run

from stannel.compat import airflow as shim
from stannel.protocol.requests import DeferTask, SucceedTask
from stannel.sdk import serde
from stannel.sdk.load import load_dags
from stannel.triggers.base import BaseTrigger, TriggerEvent
from stannel.triggers.loading import load_trigger, plain_arguments
from stannel.triggers.temporal import DateTimeTrigger

# What a DAG file adds to such a class.
USED = """

from airflow.sdk import DAG

with DAG("d"):
    WaitOneHourSensor(task_id="wait"{arguments})
"""
A_TRIGGER_USED = """

from airflow.sdk import DAG, BaseOperator


class Until(BaseOperator):
    def execute(self, context):
        self.defer(trigger=DateTimeTrigger(timezone.utcnow()), method_name="done")

    def done(self, context, event=None):
        return event


with DAG("d"):
    Until(task_id="wait")
"""

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _shim() -> None:
    shim.install()


def load(tmp_path: Path, source: str) -> Any:
    file = tmp_path / "deferring.py"
    file.write_text(source)
    (dag,) = load_dags(file, tmp_path).dags.values()
    return dag


@pytest.mark.parametrize(
    "source",
    [ALWAYS_DEFERRED + USED.format(arguments=""), BOTH_MODES + USED.format(arguments=", deferrable=True")],
    ids=["always deferred", "both modes"],
)
def test_the_sensors_defer_for_an_hour_and_complete(tmp_path: Path, source: str) -> None:
    dag, channel = load(tmp_path, source), MemoryChannel()
    before = datetime.now(UTC)
    message = run(dag, "wait", channel)
    assert isinstance(message, DeferTask)
    assert (message.classpath, message.next_method) == ("stannel.triggers.temporal.DateTimeTrigger", "execute_complete")
    trigger = load_trigger(message.classpath, serde.decode(message.trigger_kwargs))
    assert isinstance(trigger, DateTimeTrigger)
    assert before + timedelta(hours=1) <= trigger.moment <= datetime.now(UTC) + timedelta(hours=1)
    assert isinstance(run(dag, "wait", channel, **resumed(message, trigger.moment)), SucceedTask)


@pytest.mark.parametrize(("setting", "expected"), [("True", True), ("false", False), (None, False)])
def test_the_default_of_the_sensor_is_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str | None, expected: bool
) -> None:
    if setting is not None:
        monkeypatch.setenv("STANNEL__OPERATORS__DEFAULT_DEFERRABLE", setting)
    assert load(tmp_path, BOTH_MODES + USED.format(arguments="")).get_task("wait").deferrable is expected


def test_the_trigger_of_the_example_is_handed_over_and_runs(tmp_path: Path) -> None:
    dag, channel = load(tmp_path, A_TRIGGER + A_TRIGGER_USED), MemoryChannel()
    message = run(dag, "wait", channel)
    assert message.classpath == "airflow.triggers.temporal.DateTimeTrigger"
    trigger = load_trigger(message.classpath, serde.decode(message.trigger_kwargs))

    async def first_event() -> TriggerEvent:
        return await anext(aiter(trigger.run()))

    with asyncio.Runner() as runner:
        event = runner.run(first_event())
    assert isinstance(run(dag, "wait", channel, **resumed(message, event.payload)), SucceedTask)
    assert serde.decode(channel.returned("wait")) == event.payload


def test_the_class_of_the_example_itself_waits_and_fires() -> None:
    names: dict[str, Any] = {}
    exec(A_TRIGGER, names)
    trigger = names["DateTimeTrigger"](NOON - timedelta(days=900))

    async def first_event() -> TriggerEvent:
        return await anext(aiter(trigger.run()))

    with asyncio.Runner() as runner:
        assert runner.run(first_event()) == TriggerEvent(NOON - timedelta(days=900))


def test_an_argument_marked_as_secret_reaches_the_constructor_under_its_own_name() -> None:
    names: dict[str, Any] = {"BaseTrigger": BaseTrigger}
    exec(A_SECRET, names)
    kind = names["MyTrigger"]
    classpath, arguments = kind("p", "s").serialize()
    assert classpath == "airflow.triggers.MyTrigger"
    again = kind(**plain_arguments(serde.decode(serde.encode(arguments))))
    assert (again.param, again.secret) == ("p", "s")
    assert "'s'" not in repr(again)
