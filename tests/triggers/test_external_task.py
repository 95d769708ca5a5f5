import asyncio
from datetime import UTC, datetime

import pytest

from stannel.model.states import RunState, TaskState
from stannel.protocol.requests import GetDRCount, GetTaskStates
from stannel.triggers.base import TriggerEvent
from stannel.triggers.external_task import DagStateTrigger, WorkflowTrigger, all_tasks_in, any_task_in, missing_tasks

DATE = datetime(2030, 1, 1, tzinfo=UTC)


async def payload_of(trigger):
    [event] = [event async for event in trigger.run()]
    assert type(event) is TriggerEvent
    return event.payload


def later(delay, action, *args):
    asyncio.get_running_loop().call_later(delay, action, *args)


@pytest.mark.parametrize(
    ("runs", "task_ids", "count", "expected"),
    [
        ({"r": {"a": "success", "b": "success"}}, ["a", "b"], 1, True),
        ({"r": {"a": "success"}}, ["a", "b"], 1, False),
        ({"r": {"a": "success", "b": None}}, ["a", "b"], 1, False),
        ({"r": {"a_0": "success", "a_1": "success"}}, ["a"], 1, True),
        ({"r": {"a_0": "success", "a_1": "failed"}}, ["a"], 1, False),
        ({"r": {"a": "success"}}, ["a"], 2, False),
        ({}, ["a"], 1, False),
        ({"r": {"g.a": "success", "g.b": "success"}}, [], 1, True),
    ],
)
def test_all_tasks_of_all_runs_must_be_there(runs, task_ids, count, expected):
    assert all_tasks_in(runs, ["success"], task_ids=task_ids, run_count=count) is expected


def test_one_task_in_a_state_is_enough_for_any():
    assert any_task_in({"r": {"a": "success", "b": "failed"}}, ["failed"])
    assert not any_task_in({"r": {"a": "success", "b": None}}, ["failed"])
    assert not any_task_in({}, ["failed"])


def test_tasks_that_a_run_lacks_are_named():
    assert missing_tasks({"a": "success", "m_3": None}, ["a", "m", "z"]) == ["z"]


@pytest.mark.parametrize(
    "make", [lambda **ids: WorkflowTrigger("d", **ids), lambda **ids: DagStateTrigger("d", [], **ids)]
)
def test_a_wait_for_no_run_in_particular_is_refused(make):
    with pytest.raises(ValueError, match="without run_ids or logical_dates"):
        make()
    with pytest.raises(ValueError, match="without run_ids or logical_dates"):
        make(run_ids=[])


@pytest.mark.parametrize(
    ("state", "status"), [("success", "success"), ("failed", "failed"), ("queued", "skipped"), ("running", None)]
)
def test_the_state_of_a_run_decides(engine, virtually, state, status):
    engine.end("r", state)
    trigger = WorkflowTrigger(
        "other", ["r"], failed_states=[RunState.FAILED], skipped_states=["queued"], allowed_states=["success"]
    )

    async def work():
        later(100, engine.end, "r", "success")
        return await payload_of(trigger)

    assert virtually(work()) == ({"status": status or "success"}, 0.0 if status else 100.0)


def test_all_runs_must_have_ended_well(engine, virtually):
    engine.end("a", "success")

    async def work():
        later(7, engine.end, "b", "success")
        return await payload_of(WorkflowTrigger("other", ["a", "b"], poke_interval=1000))

    assert virtually(work()) == ({"status": "success"}, 7.0)


def test_a_failed_run_counts_more_than_ended_ones(engine, virtually):
    engine.end("a", "success")
    engine.end("b", "failed")
    payload, _ = virtually(payload_of(WorkflowTrigger("other", ["a", "b"], failed_states=["failed"])))
    assert payload == {"status": "failed"}


@pytest.mark.parametrize(("state", "status"), [("success", "success"), ("failed", "failed"), ("skipped", "skipped")])
def test_tasks_of_a_run_are_looked_at_in_turns(engine, virtually, state, status):
    engine.tasks = {"r": {"t": "running"}}
    trigger = WorkflowTrigger(
        "other",
        ["r"],
        external_task_ids={"t"},
        failed_states=[TaskState.FAILED],
        skipped_states=[TaskState.SKIPPED],
        poke_interval=3.0,
    )

    async def work():
        later(5, engine.tasks["r"].update, {"t": state})
        return await payload_of(trigger)

    assert virtually(work()) == ({"status": status}, 6.0)
    assert {type(question) for question in engine.asked} == {GetTaskStates}


def test_a_task_group_is_over_when_all_of_it_is(engine, virtually):
    engine.tasks = {"r": {"g.a": "success", "g.b": None}}

    async def work():
        later(1, engine.tasks["r"].update, {"g.b": "success"})
        return await payload_of(WorkflowTrigger("other", ["r"], external_task_group_id="g"))

    assert virtually(work()) == ({"status": "success"}, 2.0)
    assert engine.asked[0].task_group_id == "g"


def test_a_dag_that_does_not_exist_yet_is_waited_for(engine, virtually):
    async def work():
        async with asyncio.timeout(60):
            return await payload_of(WorkflowTrigger("unknown", ["r"], external_task_ids=["t"], poke_interval=10))

    with pytest.raises(TimeoutError):
        virtually(work())
    assert len(engine.asked) >= 6


def test_logical_dates_are_asked_about_as_dates(engine, virtually):
    engine.end("any", "success")
    for trigger in (
        WorkflowTrigger("other", execution_dates=[DATE]),
        DagStateTrigger("other", ["success"], None, [DATE]),
    ):
        virtually(payload_of(trigger))
        assert engine.asked[-1] == GetDRCount(dag_id="other", logical_dates=[DATE], states=["success"])


def test_the_states_of_the_runs_come_with_what_was_waited_for(engine, virtually):
    trigger = DagStateTrigger("other", [RunState.SUCCESS, "failed"], ["a", "b"], poll_interval=1000)
    engine.end("a", "success")

    async def work():
        later(4, engine.end, "b", "failed")
        return await payload_of(trigger)

    classpath, kwargs = trigger.serialize()
    assert virtually(work()) == ((classpath, {**kwargs, "a": "success", "b": "failed"}), 4.0)


def test_a_run_that_is_cleared_while_we_look_is_waited_for_again(engine, virtually):
    engine.end("r", "success")
    cleared = iter([True])

    def clear_once():
        if next(cleared, False):
            engine.runs["r"] = "queued"

    engine.on_ask = clear_once

    async def work():
        later(9, engine.end, "r", "success")
        return await payload_of(DagStateTrigger("other", ["success"], ["r"], poll_interval=1000))

    payload, took = virtually(work())
    assert (payload[1]["r"], took) == ("success", 9.0)
