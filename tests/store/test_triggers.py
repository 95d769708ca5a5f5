"""Waits: begun, claimed, fired, timed out, killed, taken over."""

from datetime import timedelta
from typing import Any

import pytest
from store.world import NOW, World, after, task

from stannel.errors import UnknownId
from stannel.model.dag import StartTrigger
from stannel.model.plan import Instance
from stannel.model.states import RunState, TaskState, TriggerState
from stannel.model.trigger import CancelReason, Event, Failure, FailureReason, Firing, Trigger
from stannel.store import Store
from stannel.store.vault import Vault
from stannel.store.waits import expire_waits, next_wait_deadline

MOMENT = "stannel.triggers.temporal.DateTimeTrigger"


def moment_kwargs(seconds: float, **more: Any) -> dict[str, Any]:
    text = after(seconds).isoformat()
    return {"moment": {"__classname__": "datetime.datetime", "__version__": 1, "__data__": text}, **more}


def fired(one: Trigger, payload: Any = None, **fields: Any) -> Firing:
    return Firing(id=one.id, epoch=one.epoch, what=Event(payload=payload, **fields))


def failed(one: Trigger, **fields: Any) -> Firing:
    return Firing(id=one.id, epoch=one.epoch, what=Failure(**fields))


def expire(world: World, seconds: float) -> int:
    with world.store.transaction() as tx:
        return len(expire_waits(tx, world.store.dags, after(seconds)))


# --- an ordinary wait -------------------------------------------------------------------------------------------------


def test_a_deferred_task_frees_its_attempt_and_waits(world: World) -> None:
    world.deferred()
    assert world.states() == {"a": "deferred"}
    assert world.attempts() == [("a", 1, "deferred")]
    assert world.store.upkeep.check() == []


def test_the_event_resumes_the_task_where_it_said_in_the_same_try(world: World) -> None:
    world.deferred(next_kwargs={"kept": 1})
    [one] = world.triggers()
    assert world.store.triggers.settle("t", [fired(one, {"status": "ok"})], now=after(1)) == [True]
    assert world.states() == {"a": "scheduled"}
    world.queue()
    [attempt] = world.claim(at=after(2))
    assert (attempt.next_method, attempt.next_kwargs) == ("resume", {"kept": 1, "event": {"status": "ok"}})
    assert attempt.try_number == 1
    assert attempt.first_start_date == NOW
    assert world.store.triggers.all() == []


def test_an_event_without_payload_is_still_an_event(world: World) -> None:
    world.deferred()
    world.store.triggers.settle("t", [fired(one) for one in world.triggers()], now=NOW)
    world.queue()
    [attempt] = world.claim()
    assert attempt.next_kwargs == {"event": None}


def test_a_task_may_defer_again_and_forgets_the_earlier_event(world: World) -> None:
    world.deferred()
    world.store.triggers.settle("t", [fired(one, "first") for one in world.triggers()], now=NOW)
    world.queue()
    [attempt] = world.claim()
    assert world.defer(attempt, method="later", next_kwargs={"n": 2})
    [again] = world.triggers()
    world.store.triggers.settle("t", [fired(again, "second")], now=NOW)
    world.queue()
    [attempt] = world.claim()
    assert (attempt.next_method, attempt.next_kwargs) == ("later", {"n": 2, "event": "second"})


def test_the_id_of_a_trigger_that_is_gone_is_never_given_again(world: World) -> None:
    world.deferred("a")
    [first] = world.triggers()
    assert world.store.triggers.settle("t", [fired(first)], now=NOW) == [True]
    world.queue()
    [attempt] = world.claim()
    assert world.defer(attempt)
    [second] = world.triggers()
    assert second.id > first.id
    # What is still said of the first does not end the wait for the second.
    assert world.store.triggers.settle("t", [fired(first)], now=NOW) == [False]


def test_a_retry_after_a_wait_starts_from_the_beginning(world: World) -> None:
    world.deferred(task("a", retries=1))
    world.store.triggers.settle("t", [fired(one) for one in world.triggers()], now=NOW)
    world.queue()
    [attempt] = world.claim()
    world.finish(attempt, TaskState.UP_FOR_RETRY, retry_at=NOW)
    world.schedule(after(1))
    world.queue()
    [second] = world.claim()
    assert (second.try_number, second.next_method, second.next_kwargs) == (2, None, None)


def test_the_arguments_are_sealed_in_the_database_and_plain_for_the_owner(world: World) -> None:
    world.deferred(kwargs={"token": "hush-hush"})
    [(stored,)] = world.sql('SELECT kwargs FROM "trigger"')
    assert "hush" not in stored
    [one] = world.triggers()
    assert one.kwargs == {"token": "hush-hush"}


def test_a_trigger_whose_arguments_were_sealed_with_a_lost_key_says_so_and_others_are_as_ever(world: World) -> None:
    world.deferred("a", "b")
    other = Vault("TG9zdC1rZXktbG9zdC1rZXktbG9zdC1rZXktbG9zdC0=")
    world.plant(f"UPDATE \"trigger\" SET kwargs = '{other.seal('{}')}' WHERE task_id = 'a'")
    a, b = sorted(world.triggers(), key=lambda one: one.task_id)
    assert "cannot be" in (a.unreadable or "")
    assert b.unreadable is None
    # Its owner can only fail it.
    assert world.store.triggers.settle("t", [failed(a, traceback=[a.unreadable])], now=NOW) == [True]
    assert world.states() == {"a": "failed", "b": "deferred"}
    assert "cannot be" in (world.instance("a").note or "")


def test_resealing_uses_the_newest_key(world: World, store: Store) -> None:
    world.deferred(kwargs={"x": 1})
    before = world.sql('SELECT kwargs FROM "trigger"')
    assert store.triggers.reseal() == 1
    assert world.sql('SELECT kwargs FROM "trigger"') != before
    assert world.triggers()[0].kwargs == {"x": 1}


# --- who runs what ----------------------------------------------------------------------------------------------------


def test_two_triggerers_never_hold_the_same_trigger(world: World) -> None:
    world.deferred("a", "b", "c")
    mine, others = world.triggers("t1", most=2), world.triggers("t2")
    assert len(mine) == 2
    assert len(others) == 1
    assert not {one.id for one in mine} & {one.id for one in others}


def test_the_most_urgent_task_is_claimed_first(world: World) -> None:
    world.deferred(task("a"), task("b", priority=7), task("c", priority=3))
    assert [one.task_id for one in world.triggers(most=2)] == ["b", "c"]


def test_a_queue_is_served_only_by_those_who_asked_for_it(world: World) -> None:
    world.deferred(queue="gpu")
    assert world.triggers("plain") == []
    assert world.triggers("wrong", queues=["cpu"]) == []
    assert world.store.triggers.queues() == ["gpu"]
    assert (world.store.triggers.load(None), world.store.triggers.load(["gpu"])) == (0, 1)
    assert len(world.triggers("right", queues=["cpu", "gpu"])) == 1


def test_a_released_trigger_goes_to_the_next_with_a_new_epoch(world: World) -> None:
    world.deferred()
    [one] = world.triggers("t1")
    assert world.store.triggers.release("t1") == 1
    [same] = world.triggers("t2")
    assert (same.id, same.epoch) == (one.id, one.epoch + 1)


def test_what_an_earlier_owner_says_is_refused(world: World) -> None:
    world.deferred()
    [stale] = world.triggers("t1")
    world.store.triggers.release("t1")
    [fresh] = world.triggers("t2")
    assert world.store.triggers.settle("t1", [fired(stale, "late")], now=NOW) == [False]
    assert world.states() == {"a": "deferred"}
    assert world.store.triggers.settle("t2", [fired(fresh, "right")], now=NOW) == [True]


def test_an_owner_that_comes_back_to_its_own_trigger_must_use_the_new_epoch(world: World) -> None:
    world.deferred()
    [stale] = world.triggers("t1")
    world.store.triggers.release("t1")
    [fresh] = world.triggers("t1")
    assert world.store.triggers.settle("t1", [fired(stale)], now=NOW) == [False]
    assert world.store.triggers.settle("t1", [fired(fresh)], now=NOW) == [True]


def test_only_the_first_event_counts_even_in_one_batch(world: World) -> None:
    world.deferred()
    [one] = world.triggers()
    assert world.store.triggers.settle("t", [fired(one, 1), fired(one, 2)], now=NOW) == [True, False]
    assert world.store.triggers.settle("t", [fired(one, 3)], now=NOW) == [False]
    world.queue()
    assert world.claim()[0].next_kwargs == {"event": 1}


def test_whoever_leaves_gives_back_its_triggers_and_its_lease_at_once(world: World) -> None:
    world.deferred("a", "b")
    world.triggers("first")
    world.store.triggers.leave("first")
    assert "first" not in {one.owner for one in world.store.leases.all()}
    assert {one.task_id for one in world.triggers("second")} == {"a", "b"}


def test_the_triggers_of_a_dead_triggerer_are_free_again(world: World) -> None:
    world.deferred("a", "b")
    assert len(world.triggers("t1")) == 2
    assert world.store.triggers.take_over(after(5)) == 0
    assert world.store.triggers.take_over(after(11)) == 2
    assert len(world.triggers("t2", at=after(11))) == 2


def test_the_triggers_of_an_owner_nobody_knows_are_found_by_the_thorough_look(world: World) -> None:
    world.deferred()
    world.triggers("t1")
    world.store.leases.release("t1")
    assert world.store.triggers.take_over(NOW) == 0
    assert world.store.triggers.take_over(NOW, thorough=True) == 1


def test_held_says_what_the_store_believes(world: World) -> None:
    world.deferred("a", "b")
    mine = {one.id: one.epoch for one in world.triggers("t1")}
    assert world.store.triggers.held("t1") == mine
    assert world.store.triggers.held("t2") == {}


# --- moments ----------------------------------------------------------------------------------------------------------


def test_a_wait_for_a_moment_needs_no_host(world: World) -> None:
    world.deferred(classpath=MOMENT, kwargs=moment_kwargs(60))
    assert world.triggers() == []
    assert world.store.triggers.load(None) == 0
    assert world.store.triggers.next_due() == after(60)
    assert world.store.triggers.fire_due(after(59), most=10) == 0
    assert world.store.triggers.fire_due(after(60), most=10) == 1
    assert world.store.triggers.next_due() is None
    world.queue()
    [attempt] = world.claim(at=after(61))
    assert attempt.next_kwargs == {"event": moment_kwargs(60)["moment"]}
    assert world.store.upkeep.check() == []


def test_due_moments_are_fired_in_order_and_in_portions(world: World) -> None:
    attempts = world.running("a", "b", "c")
    for seconds, attempt in zip((30, 10, 20), attempts, strict=True):
        world.defer(attempt, MOMENT, kwargs=moment_kwargs(seconds))
    assert world.store.triggers.fire_due(after(60), most=2) == 2
    assert world.states() == {"a": "deferred", "b": "scheduled", "c": "scheduled"}
    assert world.store.triggers.fire_due(after(60), most=2) == 1


def test_a_moment_may_end_its_task(world: World) -> None:
    world.deferred(classpath=MOMENT, kwargs=moment_kwargs(1, end_from_trigger=True), method=None)
    assert world.store.triggers.fire_due(after(1), most=10) == 1
    assert world.states() == {"a": "success"}


def test_a_moment_that_is_no_moment_is_left_to_a_host(world: World) -> None:
    world.deferred(classpath=MOMENT, kwargs={"moment": "tomorrow"})
    assert len(world.triggers()) == 1


# --- ending without a worker ------------------------------------------------------------------------------------------


def test_a_trigger_ends_its_task_with_values_and_callbacks(world: World) -> None:
    world.deferred(task("a", callbacks=("success",)), method=None)
    [one] = world.triggers()
    event = fired(one, ends=TaskState.SUCCESS, xcoms={"return_value": [1, 2], "k": "v"})
    assert world.store.triggers.settle("t", [event], now=after(3)) == [True]
    assert world.states() == {"a": "success"}
    run = world.run()
    assert world.store.xcoms.get(run.pk, "a", -1, "return_value") == "[1,2]"
    assert world.store.xcoms.get(run.pk, "a", -1, "k") == '"v"'
    [work] = world.store.callbacks.claim("w", most=9, now=NOW)
    assert (work.kind, work.scope) == ("success", "task")
    assert world.instance().end_date == after(3)


@pytest.mark.parametrize(
    ("ends", "retries", "state", "kind"),
    [
        (TaskState.FAILED, 0, "failed", "failure"),
        (TaskState.FAILED, 1, "up_for_retry", "retry"),
        (TaskState.SKIPPED, 1, "skipped", "skipped"),
    ],
)
def test_a_task_ended_by_its_trigger_is_ended_like_any_other(
    world: World, ends: TaskState, retries: int, state: str, kind: str
) -> None:
    world.deferred(task("a", retries=retries, callbacks=("failure", "retry", "skipped")), method=None)
    [one] = world.triggers()
    world.store.triggers.settle("t", [fired(one, ends=ends, xcoms={"k": 1})], now=NOW)
    assert world.states() == {"a": state}
    assert [work.kind for work in world.store.callbacks.claim("w", most=9, now=NOW)] == [kind]
    kept = world.store.xcoms.get(world.run().pk, "a", -1, "k")
    assert kept == (None if state == "up_for_retry" else "1")


def test_an_event_for_a_task_without_a_method_fails_it_and_says_why(world: World) -> None:
    world.deferred(method=None)
    world.store.triggers.settle("t", [fired(one, 1) for one in world.triggers()], now=NOW)
    assert world.states() == {"a": "failed"}
    assert "no method" in (world.instance().note or "")


def test_a_failed_trigger_fails_its_task_without_a_worker(world: World) -> None:
    world.deferred()
    [one] = world.triggers()
    world.store.triggers.settle("t", [failed(one, traceback=["Traceback\n", "ValueError: no\n"])], now=NOW)
    assert world.states() == {"a": "failed"}
    assert world.instance().note == "Trigger failure: ValueError: no"


def test_code_that_wants_to_hear_of_the_failure_is_told_on_a_worker(world: World) -> None:
    world.deferred(task("a", resumes_failures=True), next_kwargs={"kept": 1})
    [one] = world.triggers()
    world.store.triggers.settle("t", [failed(one, traceback=["boom\n"])], now=NOW)
    world.queue()
    [attempt] = world.claim()
    assert attempt.next_method == "__fail__"
    assert attempt.next_kwargs == {"kept": 1, "error": "Trigger failure", "traceback": ["boom\n"]}


# --- deadlines --------------------------------------------------------------------------------------------------------


def test_a_wait_that_takes_too_long_fails(world: World) -> None:
    world.deferred(timeout=30.0)
    with world.store.read() as tx:
        assert next_wait_deadline(tx) is not None
    assert expire(world, 29) == 0
    assert expire(world, 30) == 1
    assert world.states() == {"a": "failed"}
    assert world.instance().note == FailureReason.TIMEOUT
    assert world.store.triggers.all() == []


def test_the_owner_of_an_overdue_trigger_is_told_to_stop_it_once(world: World) -> None:
    world.deferred(timeout=30.0)
    [one] = world.triggers()
    assert expire(world, 31) == 1
    assert world.store.triggers.settle("t", [fired(one)], now=after(31)) == [False]
    assert world.store.triggers.orders("t") == [(one.id, CancelReason.TIMEOUT)]
    assert world.store.triggers.orders("t") == []
    assert world.store.triggers.all() == []


def test_an_overdue_wait_is_tried_again_like_any_failure(world: World) -> None:
    world.deferred(task("a", retries=1), timeout=1.0)
    assert expire(world, 2) == 1
    assert world.states() == {"a": "up_for_retry"}


def test_a_sensor_hears_of_its_timeout_on_a_worker(world: World) -> None:
    world.deferred(task("a", resumes_failures=True), timeout=1.0)
    expire(world, 2)
    world.queue()
    assert world.claim()[0].next_kwargs == {"error": "Trigger timeout", "traceback": None}


def test_execution_timeout_bounds_the_wait(world: World) -> None:
    [attempt] = world.running(task("a", execution_timeout=100.0))
    world.defer(attempt, at=after(40), timeout=500.0)
    assert world.store.triggers.all()[0].deadline_at == after(100)
    assert expire(world, 100) == 1
    assert world.instance().note == "execution timeout"


def test_a_later_wait_of_the_same_try_has_only_what_is_left(world: World) -> None:
    [attempt] = world.running(task("a", execution_timeout=100.0))
    world.defer(attempt, at=after(40))
    world.store.triggers.settle("t", [fired(one) for one in world.triggers()], now=after(50))
    world.queue(after(50))
    [again] = world.claim(at=after(60))
    world.defer(again, at=after(61))
    assert world.store.triggers.all()[0].deadline_at == after(100)


# --- what people do ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["clear", "success", "failed", "skipped"])
def test_a_persons_verdict_kills_the_wait_once(world: World, action: str) -> None:
    world.deferred()
    [one] = world.triggers()
    pks = [world.instance().pk]
    if action == "clear":
        world.store.tasks.clear(world.run(), pks, now=NOW)
    else:
        world.store.tasks.set_state(world.run(), pks, TaskState(action), now=NOW)
    assert world.store.triggers.settle("t", [fired(one)], now=NOW) == [False]
    assert world.store.triggers.orders("t") == [(one.id, CancelReason.KILLED)]
    assert world.store.triggers.orders("t") == []
    world.store.triggers.forget("t", [one.id])
    assert world.store.triggers.all() == []
    assert world.states() == {"a": "none" if action == "clear" else action}


def test_a_killed_trigger_that_nobody_runs_is_claimed_for_its_on_kill(world: World) -> None:
    world.deferred()
    world.store.tasks.set_state(world.run(), [world.instance().pk], TaskState.FAILED, now=NOW)
    [one] = world.triggers()
    assert one.state is TriggerState.KILLING
    assert world.store.triggers.orders("t") == []
    world.store.triggers.forget("t", [one.id])
    assert world.store.triggers.all() == []


def test_on_kill_is_not_owed_twice_when_its_owner_dies_in_it(world: World) -> None:
    world.deferred()
    world.triggers("t1")
    world.store.tasks.set_state(world.run(), [world.instance().pk], TaskState.FAILED, now=NOW)
    assert len(world.store.triggers.orders("t1")) == 1
    world.store.triggers.take_over(after(11))
    assert world.triggers("t2", at=after(11)) == []
    assert world.store.triggers.all() == []


def test_a_cleared_task_can_wait_anew_beside_the_killed_trigger(world: World) -> None:
    world.deferred()
    [old] = world.triggers()
    world.store.tasks.clear(world.run(), [world.instance().pk], now=NOW)
    world.advance()
    [attempt] = world.claim()
    world.defer(attempt)
    [new] = world.triggers()
    assert world.store.triggers.settle("t", [fired(old, "old"), fired(new, "new")], now=NOW) == [False, True]
    world.queue()
    assert world.claim()[0].next_kwargs == {"event": "new"}


def test_a_killed_wait_for_a_moment_is_simply_gone(world: World) -> None:
    world.deferred(classpath=MOMENT, kwargs=moment_kwargs(1))
    world.store.tasks.set_state(world.run(), [world.instance().pk], TaskState.FAILED, now=NOW)
    assert world.store.triggers.all() == []


def test_marking_a_run_kills_its_waits(world: World) -> None:
    world.deferred("a", "b")
    world.triggers()
    world.store.runs.set_state(world.run(), RunState.FAILED, now=NOW)
    assert {reason for _, reason in world.store.triggers.orders("t")} == {CancelReason.KILLED}
    assert set(world.states().values()) == {"skipped"}


def test_deleting_a_run_still_owes_its_triggers_their_on_kill(world: World) -> None:
    world.deferred()
    [one] = world.triggers()
    world.store.runs.delete(world.run())
    assert world.store.triggers.orders("t") == [(one.id, CancelReason.KILLED)]


def test_cancelling_a_trigger_fails_its_task_for_good(world: World) -> None:
    world.deferred(task("a", retries=3))
    [one] = world.triggers()
    assert world.store.triggers.cancel(one.id, now=NOW)
    assert world.states() == {"a": "failed"}
    assert "cancelled" in (world.instance().note or "")
    assert not world.store.triggers.cancel(one.id, now=NOW)
    with pytest.raises(UnknownId):
        world.store.triggers.cancel(one.id + 1000, now=NOW)


# --- starting from a trigger ------------------------------------------------------------------------------------------


def test_a_task_that_starts_from_its_trigger_sees_no_worker_before_the_event(world: World) -> None:
    spec = task(
        "a",
        start_trigger=StartTrigger(classpath="x.Y", kwargs={"p": "{{ ds }}"}, method="go", timeout=60.0, renders=True),
    )
    world.dag(spec)
    run = world.new_run()
    world.start()
    world.schedule()
    instance = world.instance()
    with world.store.transaction() as tx:
        found = Instance(instance.pk, "a", -1, TaskState.SCHEDULED)
        world.store.triggers.start(tx, run, spec, [found], now=NOW)
    assert world.states() == {"a": "deferred"}
    assert world.instance().try_number == 1
    [one] = world.triggers()
    assert one.renders
    assert one.deadline_at == NOW + timedelta(seconds=60)
    world.store.triggers.settle("t", [fired(one, "go!")], now=after(1))
    world.queue()
    [attempt] = world.claim(at=after(2))
    assert (attempt.try_number, attempt.next_method, attempt.next_kwargs) == (1, "go", {"event": "go!"})
    assert world.store.upkeep.check() == []


def test_the_try_that_waits_can_be_described(world: World) -> None:
    world.deferred()
    [one] = world.triggers()
    attempt = world.store.triggers.attempt_of(one.id, now=NOW)
    assert attempt is not None
    assert (attempt.dag_id, attempt.run_id, attempt.task_id, attempt.try_number) == ("d", "r", "a", 1)
    assert world.store.triggers.attempt_of(one.id + 1000, now=NOW) is None


def test_a_start_trigger_with_a_delay_becomes_a_moment_that_no_takeover_moves(world: World) -> None:
    delta = {"__classname__": "datetime.timedelta", "__version__": 1, "__data__": [0, 90, 0]}
    spec = task(
        "a",
        start_trigger=StartTrigger(classpath=f"{MOMENT.rpartition('.')[0]}.TimeDeltaTrigger", kwargs={"delta": delta}),
    )
    world.dag(spec)
    run = world.new_run()
    world.start()
    world.schedule()
    with world.store.transaction() as tx:
        found = Instance(world.instance().pk, "a", -1, TaskState.SCHEDULED)
        world.store.triggers.start(tx, run, spec, [found], now=NOW)
    assert world.store.triggers.next_due() == after(90)


def test_whoever_serves_every_queue_takes_those_without_one_too(world: World) -> None:
    attempts = world.running("a", "b")
    world.defer(attempts[0], queue="gpu")
    world.defer(attempts[1])
    assert world.store.triggers.load(["*"]) == 2
    assert len(world.triggers(queues=["*"])) == 2


def test_an_owed_on_kill_needs_no_room_and_no_queue(world: World) -> None:
    attempts = world.running("a", "b")
    world.defer(attempts[0], queue="gpu")
    world.defer(attempts[1])
    assert world.store.triggers.claim_owed("t", most=10, queues=None, now=NOW) == []
    world.store.tasks.set_state(world.run(), [world.instance("a").pk], TaskState.FAILED, now=NOW)
    [one] = world.store.triggers.claim_owed("t", most=10, queues=None, now=NOW)
    assert (one.task_id, one.state) == ("a", TriggerState.KILLING)
