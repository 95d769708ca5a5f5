"""What tasks ask about other runs and tasks."""

import pytest
from store.world import NOW, World, after, new_run, scheduled_run

from stannel.model.states import RunState, TaskState
from stannel.store.questions import Which


@pytest.fixture
def history(world: World) -> World:
    """Three daily runs: the first succeeded, the second failed, the third is running; and one without a date."""
    spec = world.dag("a", "b")
    version = world.store.dags.get("d").version
    for new in (scheduled_run(1), scheduled_run(2), scheduled_run(3), new_run("undated")):
        world.store.runs.create(version, spec, new, now=NOW)
    world.advance(after(1e6))
    for attempt in world.claim():
        if attempt.run_id in ("scheduled-1", "scheduled-2"):
            failed = attempt.run_id == "scheduled-2" and attempt.task_id == "b"
            world.finish(attempt, TaskState.FAILED if failed else TaskState.SUCCESS)
    world.store.runs.set_state(world.run("scheduled-1"), RunState.SUCCESS, now=NOW)
    world.store.runs.set_state(world.run("scheduled-2"), RunState.FAILED, now=NOW)
    return world


def test_the_previous_run_may_be_asked_for_by_state(history):
    third = history.run("scheduled-3").logical_date
    ask = history.store.questions.previous_run
    assert ask("d", third, None).run_id == "scheduled-2"
    assert ask("d", third, RunState.SUCCESS).run_id == "scheduled-1"
    assert ask("d", third, RunState.RUNNING) is None
    assert ask("nobody", third, None) is None


def test_the_previous_instance_of_a_task(history):
    third = history.run("scheduled-3").logical_date
    ask = history.store.questions.previous_instance
    before = ask(Which(dag_id="d", task_ids=["b"]), third)
    assert (before.run_id, before.state) == ("scheduled-2", TaskState.FAILED)
    assert ask(Which(dag_id="d", task_ids=["b"], states=["success"]), third).run_id == "scheduled-1"
    assert ask(Which(dag_id="d", task_ids=["b"], map_index=3), third) is None


def test_without_a_date_the_latest_dated_instance_is_meant(history):
    found = history.store.questions.previous_instance(Which(dag_id="d", task_ids=["a"]), None)
    assert found.run_id == "scheduled-3"


def test_runs_and_instances_are_counted(history):
    ask = history.store.questions
    assert ask.count_runs(Which(dag_id="d")) == 4
    assert ask.count_runs(Which(dag_id="d", states=["failed", "success"])) == 2
    assert ask.count_runs(Which(dag_id="d", run_ids=["undated", "scheduled-1"])) == 2
    dates = [history.run("scheduled-1").logical_date]
    assert ask.count_runs(Which(dag_id="d", logical_dates=dates)) == 1
    assert ask.count_instances(Which(dag_id="d", task_ids=["a"])) == 4
    assert ask.count_instances(Which(dag_id="d", states=["success"])) == 3
    assert ask.count_instances(Which(dag_id="d", task_ids=[])) == 0


def test_states_are_told_by_run_and_task(history):
    found = history.store.questions.instance_states(Which(dag_id="d", run_ids=["scheduled-2"]))
    assert found == {"scheduled-2": {"a": "success", "b": "failed"}}


def test_a_state_nobody_decided_is_no_state(world):
    world.dag("a")
    world.new_run()
    world.plant("UPDATE task_instance SET map_index = 2")
    assert world.store.questions.instance_states(Which(dag_id="d")) == {"r": {"a_2": None}}


def test_rendered_fields_are_kept_and_replaced(world):
    world.dag("a")
    world.new_run()
    pk = world.instance().pk
    assert world.store.questions.rendered(pk) is None
    world.store.questions.save_rendered(pk, '{"x": 1}')
    world.store.questions.save_rendered(pk, '{"x": 2}')
    assert world.store.questions.rendered(pk) == '{"x": 2}'


def test_runs_that_ended_are_told_by_when_they_did(world: World) -> None:
    world.dag("a")
    first, second = world.new_run("first"), world.new_run("second")
    world.store.runs.set_state(first, RunState.SUCCESS, now=after(1))
    world.store.runs.set_state(second, RunState.FAILED, now=after(5))
    assert world.store.questions.ended_runs(after(2)) == [(second.pk, "d")]
    assert world.store.questions.ended_runs(after(0)) == [(first.pk, "d"), (second.pk, "d")]
