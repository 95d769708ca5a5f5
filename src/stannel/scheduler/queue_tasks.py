"""Hands scheduled task instances to the workers, as far as pools and limits allow, the most urgent first."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from stannel.model.moments import to_micros
from stannel.model.plan import Candidate
from stannel.scheduler.choose import Choice, Limits, Pool, Usage, choose
from stannel.store import Store
from stannel.store.leases import live_workers
from stannel.store.sql import Duty, Tx
from stannel.store.tasks import (
    Without,
    deferred_instances,
    note_waiting,
    pool_slots,
    queue_instances,
    scheduled_instances,
    slots_held_deferred,
    slots_in_use,
)

# Workers take what they can run; as much again waits for them, so that a free slot is never idle.
_QUEUED_PER_SLOT = 2
# More are looked at than there are places, for some of them wait for a pool.
_CANDIDATES_PER_SLOT = 2
# How often more candidates are asked for while the first ones all wait for something exhausted.
_MOST_LOOKS = 20


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's own limits; DAGs and tasks have theirs. `parallelism` is what each worker runs at once."""

    parallelism: int
    max_active_tasks: int
    most: int = 512


def queue_tasks(store: Store, tx: Tx, now: datetime, limits: QueueLimits) -> int:
    """Queue whatever may be queued; how many instances were."""
    tx.alone(Duty.QUEUE_TASKS)
    without, queued = Without(), 0
    places = _QUEUED_PER_SLOT * limits.parallelism * max(live_workers(tx, to_micros(now)), 1)
    for _ in range(_MOST_LOOKS):
        usage = _usage(tx)
        most = min(limits.most, (places - usage.running) * _CANDIDATES_PER_SLOT)
        candidates = scheduled_instances(tx, most, without) if most > 0 else []
        if not candidates:
            break
        usage.limits = _limits(store, tx, candidates, limits)
        usage.limits.parallelism = places
        _count_deferred(tx, usage)
        choice = choose(candidates, usage)
        chosen = set(choice.chosen)
        queue_instances(tx, [one for one in candidates if one.pk in chosen], to_micros(now))
        note_waiting(tx, choice.blocked)
        queued += len(chosen)
        if choice.full or len(candidates) < most:
            break
        _leave_out(without, choice, candidates)
    return queued


def _leave_out(without: Without, choice: Choice, candidates: Sequence[Candidate]) -> None:
    """Ask for others next time: a full pool must not keep the rest from being looked at."""
    without.pools |= choice.exhausted_pools
    without.runs |= choice.exhausted_runs
    without.first += sum(
        one.pk in choice.blocked and one.pool not in without.pools and one.run_pk not in without.runs
        for one in candidates
    )


def _usage(tx: Tx) -> Usage:
    usage = Usage(pools={}, per_run={}, per_task={}, per_task_in_run={})
    held: dict[str, int] = {}
    for one in slots_in_use(tx):
        usage.running += one.instances
        held[one.pool] = held.get(one.pool, 0) + one.slots
        usage.per_run[one.run_pk] = usage.per_run.get(one.run_pk, 0) + one.instances
        task, in_run = (one.dag_id, one.task_id), (one.run_pk, one.task_id)
        usage.per_task[task] = usage.per_task.get(task, 0) + one.instances
        usage.per_task_in_run[in_run] = usage.per_task_in_run.get(in_run, 0) + one.instances
    for name, slots in slots_held_deferred(tx).items():
        held[name] = held.get(name, 0) + slots
    for name, slots in pool_slots(tx).items():
        usage.pools[name] = Pool(None) if slots < 0 else Pool(slots, slots - held.get(name, 0))
    return usage


def _count_deferred(tx: Tx, usage: Usage) -> None:
    """`max_active_tis_per_dag(run)` counts those that wait, too; they are counted only where there is such a limit."""
    dags = sorted({dag_id for dag_id, _ in (*usage.limits.per_task, *usage.limits.per_task_in_run)})
    for dag_id, run_pk, task_id, count in deferred_instances(tx, dags) if dags else ():
        task, in_run = (dag_id, task_id), (run_pk, task_id)
        usage.per_task[task] = usage.per_task.get(task, 0) + count
        usage.per_task_in_run[in_run] = usage.per_task_in_run.get(in_run, 0) + count


def _limits(store: Store, tx: Tx, candidates: Sequence[Candidate], engine: QueueLimits) -> Limits:
    limits = Limits(per_run={}, per_task={}, per_task_in_run={})
    seen: set[str] = set()
    for one in candidates:
        spec = store.dags.spec(one.version, tx)
        limits.per_run[one.run_pk] = spec.max_active_tasks or engine.max_active_tasks
        if one.dag_id in seen:
            continue
        seen.add(one.dag_id)
        for task in spec.tasks:
            key = (one.dag_id, task.task_id)
            if task.max_active_tis_per_dag is not None:
                limits.per_task[key] = task.max_active_tis_per_dag
            if task.max_active_tis_per_dagrun is not None:
                limits.per_task_in_run[key] = task.max_active_tis_per_dagrun
    return limits
