"""Triggers that wait for a run look as soon as one ends, not at their next round."""

from datetime import UTC, datetime

from store.world import World
from triggerer.conftest import Rig

from stannel.model.states import RunState


def test_a_trigger_that_waits_for_a_run_is_told_when_it_ends(rig: Rig) -> None:
    world: World = rig.world
    world.dag("x", dag_id="other")
    world.new_run("theirs", dag_id="other")
    rig.start()
    rig.defer(
        "stannel.triggers.external_task.DagStateTrigger",
        dag_id="other",
        states=["success", "failed"],
        run_ids=["theirs"],
        # Far longer than the test has patience: only the news can make it look again.
        poll_interval=3600.0,
    )
    rig.until(lambda: "starting" in rig.said())
    run = rig.store.runs.get("other", "theirs")
    rig.store.runs.set_state(run, RunState.SUCCESS, now=datetime.now(UTC))
    rig.until_states("scheduled")
