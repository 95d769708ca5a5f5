"""Slots: who gets one, who waits, and what the waiting are told."""

from pathlib import Path

from scheduler.conftest import Stage, task


def test_a_pool_lets_in_as_many_as_it_has_slots_and_the_rest_is_told(stage: Stage) -> None:
    stage.store.pools.save("narrow", 2)
    stage.dag(*(task(f"t{number}", pool="narrow") for number in range(4)))
    run = stage.trigger()
    stage.tick()
    assert len(stage.claim()) == 2
    waiting = [one for one in stage.store.tasks.of_run(run) if one.state == "scheduled"]
    assert len(waiting) == 2
    assert all("narrow" in (one.note or "") for one in waiting)


def test_a_full_pool_does_not_hold_up_the_others(stage: Stage) -> None:
    stage.store.pools.save("narrow", 1)
    urgent = [task(f"n{number}", pool="narrow", priority=100) for number in range(200)]
    stage.dag(*urgent, task("plain"), max_active_tasks=1000)
    stage.trigger()
    stage.tick()
    assert "plain" in stage.claim()


def test_the_most_urgent_task_is_queued_first(stage: Stage) -> None:
    stage.dag(task("low", priority=1), task("high", priority=9), task("middle", priority=5), max_active_tasks=1)
    stage.trigger()
    order = []
    for _ in range(3):
        stage.tick()
        order += stage.work()
    assert order == ["high", "middle", "low"]


def test_max_active_tasks_counts_each_run_for_itself(stage: Stage) -> None:
    stage.dag(*(task(f"t{number}") for number in range(5)), max_active_tasks=2)
    stage.trigger(run_id="one")
    stage.trigger(run_id="two")
    stage.tick()
    assert sorted(one.run_id for one in stage.claim_all()) == ["one", "one", "two", "two"]


def test_parallelism_limits_everything_together(tmp_path: Path) -> None:
    stage = Stage(tmp_path, STANNEL__CORE__PARALLELISM="3")
    stage.dag(*(task(f"t{number}") for number in range(10)), max_active_tasks=10)
    stage.trigger()
    # Three run, and three more wait for a free slot.
    for expected in (6, 4):
        stage.tick()
        assert len(stage.work()) == expected
    stage.store.close()


def test_an_unknown_pool_is_named(stage: Stage) -> None:
    stage.dag(task("a", pool="nowhere"))
    run = stage.trigger()
    stage.tick()
    assert stage.claim() == {}
    assert "nowhere" in (stage.store.tasks.of_run(run)[0].note or "")
    stage.store.pools.save("nowhere", 1)
    stage.tick()
    assert list(stage.claim()) == ["a"]
