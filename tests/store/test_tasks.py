"""Task instances are queued, claimed once, finished by their owner only, and tried again as often as they may be."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from store.world import NOW, World, after, outcome, task

from stannel.errors import MoveRefused
from stannel.model.moments import to_micros
from stannel.model.plan import Expand, Move, RunPlan
from stannel.model.run import Outcome
from stannel.model.states import AttemptState, TaskState
from stannel.store.attempts import finish_instance, lost_attempts
from stannel.store.runs import take_dirty
from stannel.store.tasks import (
    Without,
    apply_plan,
    instances_of,
    next_retry,
    note_waiting,
    queue_instances,
    runs_with_due_retries,
    scheduled_instances,
    slots_in_use,
)

T = TaskState


def is_dirty(world: World) -> bool:
    with world.store.transaction() as tx:
        return bool(take_dirty(tx, 10))


def rescue(world: World, at) -> list[str]:
    """Fail whatever lost its worker, as a scheduler would."""
    with world.store.transaction() as tx:
        lost = lost_attempts(tx, to_micros(at))
        for one in lost:
            end = Outcome(state=T.FAILED, end_date=at, reason="worker died")
            finish_instance(tx, one.ti_pk, one.attempt_id, end, AttemptState.LOST)
    return [one.task_id for one in lost]


def test_a_queued_instance_has_an_attempt_that_a_worker_can_claim(world):
    world.dag("a")
    world.new_run()
    world.advance()
    assert world.attempts() == [("a", 1, "queued")]
    (claimed,) = world.claim("me", at=after(2))
    assert (claimed.task_id, claimed.try_number, claimed.start_date, claimed.fileloc) == ("a", 1, after(2), "d.py")
    assert claimed.run == world.run()
    assert world.attempts() == [("a", 1, "running")]
    assert world.instance().state is T.RUNNING
    assert world.store.attempts.still_mine("me") == {claimed.attempt_id}
    assert world.claim("me") == []


def test_the_most_urgent_are_claimed_first(world):
    world.dag(task("low", priority=1), task("high", priority=9), task("middle", priority=5))
    world.new_run()
    world.advance()
    claimed = [one.task_id for _ in range(3) for one in world.claim(most=1)]
    assert claimed == ["high", "middle", "low"]


def test_of_equal_ones_the_first_that_waited_is_claimed_first(world):
    world.dag("a")
    for number, moment in enumerate([30, 10, 20]):
        world.new_run(str(number))
        world.advance(after(moment))
    assert [one.run_id for _ in range(3) for one in world.claim(most=1)] == ["1", "2", "0"]


def test_an_attempt_is_claimed_by_one_thread_only(world):
    world.dag(*(f"t{number}" for number in range(40)))
    world.new_run()
    world.advance()
    start = threading.Barrier(4)

    def work(owner: str) -> list[str]:
        start.wait()
        mine = []
        while claimed := world.claim(owner, most=3):
            assert len(claimed) <= 3
            mine += [one.attempt_id for one in claimed]
        return mine

    with ThreadPoolExecutor(4) as threads:
        claimed = [one for mine in threads.map(work, "abcd") for one in mine]
    assert len(claimed) == len(set(claimed)) == 40


def test_a_finished_attempt_moves_its_instance_and_has_the_run_looked_at(world):
    (running,) = world.running("a")
    assert world.finish(running, end_date=after(5), rendered_map_index="label")
    one = world.instance()
    assert (one.state, one.end_date, one.rendered_map_index) == (T.SUCCESS, after(5), "label")
    assert world.attempts() == [("a", 1, "success")]
    assert is_dirty(world)


def test_an_attempt_finishes_once(world):
    (running,) = world.running("a")
    assert world.finish(running)
    assert not world.finish(running, T.FAILED)
    assert world.instance().state is T.SUCCESS
    assert world.attempts() == [("a", 1, "success")]


def test_ends_are_stored_together_and_judged_one_by_one(world):
    first, second = world.running("a", "b")
    world.finish(first)
    ends = [(first, outcome(T.FAILED)), (second, outcome(T.SUCCESS))]
    assert world.store.attempts.finish(ends) == [False, True]
    assert world.states() == {"a": "success", "b": "success"}


def test_a_late_owner_is_refused_after_a_rescue(world):
    (running,) = world.running("a", owner="lost")
    assert rescue(world, after(9)) == []
    assert rescue(world, after(11)) == ["a"]
    assert not world.finish(running)
    assert world.instance().state is T.FAILED
    assert world.attempts() == [("a", 1, "lost")]
    assert world.store.attempts.still_mine("lost") == set()


def test_a_worker_without_a_lease_is_lost_at_once(world):
    world.running("a", owner="w")
    world.store.leases.release("w")
    assert rescue(world, NOW) == ["a"]


def test_a_late_owner_is_refused_after_a_clear_even_when_the_task_runs_again(world):
    (running,) = world.running("a")
    assert world.store.tasks.clear(running.run, [running.ti_pk], now=NOW) == 1
    assert world.attempts() == [("a", 1, "cancelled")]
    assert not world.finish(running)
    world.advance(after(1))
    (again,) = world.claim("other")
    assert not world.finish(running, T.FAILED)
    assert world.finish(again)
    assert world.attempts() == [("a", 1, "cancelled"), ("a", 2, "success")]


def test_a_late_owner_is_refused_after_a_users_verdict(world):
    (running,) = world.running("a")
    assert world.store.tasks.set_state(running.run, [running.ti_pk], T.SKIPPED, now=NOW) == 1
    assert not world.finish(running)
    assert world.states() == {"a": "skipped"}
    assert world.attempts() == [("a", 1, "cancelled")]
    assert is_dirty(world)


def test_a_users_verdict_takes_a_queued_task_off_the_queue(world):
    world.dag("a")
    run = world.new_run()
    world.advance()
    world.store.tasks.set_state(run, [world.instance().pk], T.SUCCESS, now=NOW)
    assert world.claim() == []
    assert world.attempts() == [("a", 1, "cancelled")]


def test_a_users_verdict_is_an_end(world):
    world.dag("a")
    run = world.new_run()
    with pytest.raises(MoveRefused):
        world.store.tasks.set_state(run, [world.instance().pk], T.RUNNING, now=NOW)
    assert world.states() == {"a": "none"}


def test_a_verdict_that_the_table_of_moves_does_not_have_changes_nothing(world):
    (running,) = world.running("a")
    world.finish(running)
    assert world.store.tasks.set_state(running.run, [running.ti_pk], T.SUCCESS, now=NOW) == 0
    assert world.store.tasks.set_state(running.run, [running.ti_pk], T.UPSTREAM_FAILED, now=NOW) == 0
    assert world.states() == {"a": "success"}


def test_an_attempt_cannot_end_in_a_state_that_is_no_end(world):
    (running,) = world.running("a")
    with pytest.raises(MoveRefused):
        world.finish(running, T.QUEUED)
    assert world.instance().state is T.RUNNING


def test_clearing_and_judging_touch_only_the_named_run(world):
    mine, other = world.running("a")[0], None
    world.new_run("other")
    world.advance()
    (other,) = world.claim()
    assert world.store.tasks.clear(mine.run, [other.ti_pk], now=NOW) == 0
    assert world.store.tasks.set_state(mine.run, [other.ti_pk], T.FAILED, now=NOW) == 0
    assert world.finish(other), "its attempt was left alone"


def test_a_retry_is_the_next_try(world):
    (running,) = world.running(task("a", retries=1))
    assert running.should_retry
    world.finish(running, T.UP_FOR_RETRY, retry_at=after(60))
    world.schedule(after(59))
    assert world.queue(after(59)) == 0
    with world.store.transaction() as tx:
        assert next_retry(tx) == to_micros(after(60))
        assert runs_with_due_retries(tx, to_micros(after(59))) == []
        assert runs_with_due_retries(tx, to_micros(after(60))) == [running.run.pk]
    world.store.runs.sweep()
    world.advance(after(60))
    (again,) = world.claim()
    assert (again.try_number, again.should_retry) == (2, False)
    assert world.attempts() == [("a", 1, "failed"), ("a", 2, "running")]


def test_a_reschedule_is_the_same_try(world):
    (running,) = world.running(task("a", retries=1))
    counts = []
    for second in range(3):
        counts.append((running.try_number, running.reschedule_count))
        world.finish(running, T.UP_FOR_RESCHEDULE, retry_at=NOW)
        world.advance(after(second + 1))
        (running,) = world.claim()
    assert counts == [(1, 0), (1, 1), (1, 2)]
    world.finish(running, T.UP_FOR_RETRY, retry_at=NOW)
    world.advance(after(9))
    (running,) = world.claim()
    assert (running.try_number, running.reschedule_count) == (2, 0)
    assert [state for _, _, state in world.attempts()] == ["rescheduled"] * 3 + ["failed", "running"]


def test_a_rescheduled_try_remembers_when_it_first_started(world):
    (running,) = world.running(task("a", retries=1))
    starts = []
    for second in (1, 2):
        starts.append(running.first_start_date)
        world.finish(running, T.UP_FOR_RESCHEDULE, retry_at=NOW)
        world.advance(after(second))
        (running,) = world.claim(at=after(second))
        assert running.start_date == after(second)
    assert [*starts, running.first_start_date] == [None, NOW, NOW]
    assert world.instance("a").start_date == NOW

    world.finish(running, T.UP_FOR_RETRY, retry_at=NOW)
    world.advance(after(9))
    (running,) = world.claim(at=after(9))
    assert (running.first_start_date, world.instance("a").start_date) == (None, after(9)), "the next try begins anew"


def test_the_retry_of_a_paused_dag_is_nobodys_deadline(world):
    (running,) = world.running(task("a", retries=1))
    world.finish(running, T.UP_FOR_RETRY, retry_at=NOW)
    with world.store.read() as tx:
        assert next_retry(tx) == to_micros(NOW)
    world.store.dags.pause("d", paused=True)
    with world.store.transaction() as tx:
        assert next_retry(tx) is None
        assert runs_with_due_retries(tx, to_micros(after(1))) == []


def test_clearing_gives_back_the_full_number_of_tries(world):
    (running,) = world.running(task("a", retries=2))
    for _ in range(2):
        world.finish(running, T.UP_FOR_RETRY, retry_at=NOW)
        world.advance()
        (running,) = world.claim()
    world.finish(running, T.FAILED)
    assert (running.try_number, running.max_tries, running.should_retry) == (3, 2, False)
    world.store.tasks.clear(running.run, [running.ti_pk], now=NOW)
    world.advance()
    tries = []
    for _ in range(3):
        (running,) = world.claim()
        tries.append((running.try_number, running.should_retry))
        world.finish(running, T.UP_FOR_RETRY if running.should_retry else T.FAILED, retry_at=NOW)
        world.advance()
    assert tries == [(4, True), (5, True), (6, False)]


def test_clearing_stops_what_runs_and_forgets_how_it_went(world):
    first, second = world.running("a", "b")
    world.finish(first, T.FAILED, reason="boom")
    assert world.instance("a").note == "boom"
    assert world.store.tasks.clear(first.run, [first.ti_pk, second.ti_pk], now=NOW) == 2
    assert world.store.attempts.still_mine("w") == set()
    cleared = world.instance("a")
    assert (cleared.state, cleared.note, cleared.start_date, cleared.end_date) == (T.NONE, None, None, None)
    assert world.attempts() == [("a", 1, "failed"), ("b", 1, "cancelled")]


def test_a_task_cleared_while_its_run_goes_on_may_succeed_again(world):
    first, second = world.running("a", "b")
    world.finish(first)
    world.store.tasks.clear(first.run, [first.ti_pk], now=NOW)
    world.advance(after(1))
    (again,) = world.claim()
    assert world.finish(again)
    assert world.finish(second), "its neighbour was not disturbed"
    assert world.attempts() == [("a", 1, "success"), ("a", 2, "success"), ("b", 1, "success")]
    assert world.store.upkeep.check() == []


def test_a_new_try_starts_without_the_xcoms_of_the_last(world):
    (running,) = world.running(task("a", retries=1))
    put_xcom(world, running)
    world.finish(running, T.UP_FOR_RESCHEDULE, retry_at=NOW)
    world.advance()
    (running,) = world.claim()
    assert len(world.store.xcoms.of_run(running.run.pk)) == 1, "a reschedule is the same try"
    world.finish(running, T.UP_FOR_RETRY, retry_at=NOW)
    world.advance()
    assert len(world.store.xcoms.of_run(running.run.pk)) == 1, "until it starts, the old value stays"
    world.claim()
    assert world.store.xcoms.of_run(running.run.pk) == []


def put_xcom(world: World, attempt) -> None:
    row = {"run_pk": attempt.run.pk, "task_id": attempt.task_id, "map_index": attempt.map_index, "key": "k"}
    world.store.xcoms.put([row | {"value": "1", "length": None, "created_at": 0}])


def test_a_branch_skips_the_tasks_it_does_not_follow(world):
    world.dag("branch", "left", "right")
    world.new_run()
    world.start()
    with world.store.transaction() as tx:
        (run,) = take_dirty(tx, 1)
        spec = world.store.dags.spec(run.version)
        apply_plan(tx, run, spec, RunPlan(schedule=[world.instance("branch").pk]), to_micros(NOW))
    world.queue()
    (running,) = world.claim()
    world.finish(running, skip=(("left", -1),))
    assert world.states() == {"branch": "success", "left": "skipped", "right": "none"}
    assert "branch" in world.instance("left").note


def test_a_plan_schedules_ends_and_expands(world):
    world.dag("a", "b", "c")
    world.new_run()
    world.start()
    pks = {one.task_id: one.pk for one in world.instances()}
    plan = RunPlan(
        schedule=[pks["a"]], moves=[Move(pks["b"], T.UPSTREAM_FAILED, "why")], expand=[Expand(pks["c"], "c", 3)]
    )
    with world.store.transaction() as tx:
        (run,) = take_dirty(tx, 1)
        apply_plan(tx, run, world.store.dags.spec(run.version), plan, to_micros(NOW))
        found = sorted((one.task_id, one.map_index, str(one.state)) for one in instances_of(tx, run.pk))
    mapped = [("c", index, "none") for index in range(3)]
    assert found == [("a", -1, "scheduled"), ("b", -1, "upstream_failed"), *mapped]
    assert world.instance("b").note == "why"


def test_candidates_come_by_urgency_and_leave_out_what_is_full(world):
    world.dag(task("low"), task("high", priority=9), task("elsewhere", pool="other", priority=5))
    world.new_run()
    world.start()
    world.schedule()

    def candidates(most: int = 10, **without) -> list[str]:
        with world.store.read() as tx:
            return [one.task_id for one in scheduled_instances(tx, most, Without(**without))]

    assert candidates() == ["high", "elsewhere", "low"]
    assert candidates(1) == ["high"]
    assert candidates(first=1) == ["elsewhere", "low"]
    assert candidates(pools={"other"}) == ["high", "low"]
    assert candidates(runs={world.run().pk}) == []
    world.store.dags.pause("d", paused=True)
    assert candidates() == []


def test_slots_are_held_by_what_is_queued_or_running(world):
    first, _ = world.running(task("a", pool_slots=2), "b")
    with world.store.read() as tx:
        usage = sorted((one.task_id, one.instances, one.slots) for one in slots_in_use(tx))
    assert usage == [("a", 1, 2), ("b", 1, 1)]
    world.finish(first)
    with world.store.read() as tx:
        assert [one.task_id for one in slots_in_use(tx)] == ["b"]


def test_what_a_user_judged_between_choice_and_queue_gets_no_attempt(world):
    world.dag("a", "b")
    run = world.new_run()
    world.start()
    world.schedule()
    with world.store.read() as tx:
        chosen = scheduled_instances(tx, 10, Without())
    world.store.tasks.set_state(run, [world.instance("a").pk], T.SKIPPED, now=NOW)
    with world.store.transaction() as tx:
        queue_instances(tx, chosen, to_micros(NOW))
    assert world.states() == {"a": "skipped", "b": "queued"}
    assert world.attempts() == [("b", 1, "queued")]
    assert world.store.upkeep.check() == []


def test_why_a_task_waits_is_written_down_until_it_moves(world):
    world.dag("a")
    world.new_run()
    world.start()
    world.schedule()
    pk = world.instance().pk
    with world.store.transaction() as tx:
        note_waiting(tx, {pk: "the pool is full"})
    assert world.instance().note == "the pool is full"
    world.queue()
    assert world.instance().note is None
    with world.store.transaction() as tx:
        note_waiting(tx, {pk: "too late"})
    assert world.instance().note is None


def test_an_attempt_that_died_silently_has_its_authors_callback_run(world):
    (running,) = world.running(task("a", callbacks=("failure",)))
    world.finish(running, T.FAILED, unreported=True, reason="killed")
    (work,) = world.store.callbacks.claim("w", most=5, now=NOW)
    assert (work.kind, work.scope, work.reason, work.attempt.task_id) == ("failure", "task", "killed", "a")


def test_an_attempt_that_said_so_itself_ran_its_callbacks_itself(world):
    (running,) = world.running(task("a", callbacks=("failure",)))
    world.finish(running, T.FAILED)
    assert world.store.callbacks.claim("w", most=5, now=NOW) == []


def test_workers_and_a_scheduler_at_random_lose_and_double_nothing(world):
    """Claims, ends, plans and rescues from four threads at once: each task succeeds exactly once."""
    rng = random.Random(7)
    world.dag(*(task(f"t{number}", retries=5) for number in range(12)))
    for number in range(3):
        world.new_run(str(number))
    world.lease("w", seconds=1e6)
    open_tasks = 36
    done = threading.Event()

    def work(seed: int) -> None:
        chance = random.Random(seed)
        while not done.is_set():
            claimed = world.claim("w", most=chance.randint(1, 4))
            chance.shuffle(claimed)
            ends = [T.SUCCESS if chance.random() < 0.7 else T.UP_FOR_RETRY for _ in claimed]
            if claimed:
                results = [outcome(end, retry_at=NOW) for end in ends]
                assert all(world.store.attempts.finish(list(zip(claimed, results, strict=True))))

    with ThreadPoolExecutor(3) as threads:
        workers = [threads.submit(work, rng.random()) for _ in range(3)]
        while open_tasks and not any(one.done() for one in workers):
            world.advance()
            open_tasks = world.sql("SELECT count(*) FROM task_instance WHERE state <> 'success'")[0][0]
        done.set()
        for one in workers:
            one.result()
    successes = world.sql("SELECT ti_pk, count(*) FROM attempt WHERE state = 'success' GROUP BY ti_pk")
    assert sorted(count for _, count in successes) == [1] * 36
    assert world.store.upkeep.check() == []
