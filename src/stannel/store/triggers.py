"""Triggers as triggerers see them: claimed, fired, given back, taken over when their owner died."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    and_,
    bindparam,
    delete,
    func,
    literal_column,
    select,
    true,
    union_all,
    update,
)

from stannel.errors import SecretUnreadable, UnknownId
from stannel.model.dag import TaskSpec
from stannel.model.ids import new_id
from stannel.model.moments import from_micros, maybe_moment, to_micros
from stannel.model.plan import Instance
from stannel.model.run import Attempt, Run
from stannel.model.states import TaskState, TriggerState, origins
from stannel.model.trigger import EVERY_QUEUE, CancelReason, Deferral, Event, Firing, Paced, Trigger, Watch
from stannel.store.dags import Dags
from stannel.store.database import SCHEDULER, TRIGGERER, Database
from stannel.store.events import events_of_run
from stannel.store.runs import RUN_COLUMNS, mark_dirty, to_run
from stannel.store.schema import dag, dag_run, lease, trigger
from stannel.store.schema import task_instance as ti
from stannel.store.sql import Row, Tx, among, word, words
from stannel.store.state_stores import forget_successes
from stannel.store.stopping import kill_waits
from stannel.store.trigger_records import RECORD, TriggerRecord, to_record
from stannel.store.vault import Vault
from stannel.store.waits import Ending, end_waits, forget_triggers, start_waiting, waits_of
from stannel.store.watching import ANY_FREE_STREAM, claim_streams, served_assets, settle_watchers

W, R = TriggerState, CancelReason

_TASK_FIELDS = ("ti_pk", "dag_id", "run_id", "task_id", "map_index", "try_number", "attempt_id")


_COLUMNS = (
    trigger.c.pk,
    trigger.c.epoch,
    trigger.c.classpath,
    trigger.c.kwargs,
    trigger.c.state,
    trigger.c.ti_pk,
    trigger.c.dag_id,
    trigger.c.run_id,
    trigger.c.task_id,
    trigger.c.map_index,
    trigger.c.try_number,
    trigger.c.attempt_id,
    trigger.c.queue,
    trigger.c.priority,
    trigger.c.created_at,
    trigger.c.deadline_at,
    trigger.c.renders,
    trigger.c.digest,
    trigger.c.asset,
    trigger.c.watcher,
    trigger.c.stream_key,
    trigger.c.attempts,
    trigger.c.next_at,
)


def _claim(in_queue: ColumnElement[bool], *states: TriggerState) -> Any:
    free = (
        select(trigger.c.pk)
        .where(
            trigger.c.owner.is_(None),
            trigger.c.due_at.is_(None),
            trigger.c.state.in_(words(states)),
            # These are claimed by streams.
            trigger.c.stream_key.is_(None),
            in_queue,
        )
        .order_by(trigger.c.priority.desc(), trigger.c.pk)
        .limit(bindparam("most"))
        .with_for_update(skip_locked=True)
        .cte("free")
    )
    return (
        update(trigger)
        .where(trigger.c.pk.in_(select(free.c.pk)))
        .values(owner=bindparam("holder"), epoch=trigger.c.epoch + 1, claimed_at=bindparam("now"))
        .returning(*_COLUMNS)
    )


_CLAIM_PLAIN = _claim(trigger.c.queue.is_(None), W.WAITING, W.KILLED)
_CLAIM_QUEUES = _claim(among(trigger.c.queue, "queues"), W.WAITING, W.KILLED)
_CLAIM_ANY = _claim(true(), W.WAITING, W.KILLED)
_CLAIM_KILLED = _claim(true(), W.KILLED)
_ANY_KILLED = (
    select(trigger.c.pk)
    .where(trigger.c.owner.is_(None), trigger.c.due_at.is_(None), trigger.c.state == word(W.KILLED))
    .limit(1)
)
_TELL_KILLED = (
    update(trigger)
    .where(among(trigger.c.pk, "pks"), trigger.c.state.in_(words(origins(W.KILLING, W.KILLED))))
    .values(state=W.KILLING)
)
_ORDERS = union_all(
    select(trigger.c.pk, trigger.c.state, trigger.c.digest).where(
        trigger.c.owner == bindparam("holder"), trigger.c.state.in_(words([W.ENDED, W.KILLED]))
    ),
    select(trigger.c.pk, word("redrive"), trigger.c.digest).where(
        trigger.c.owner == bindparam("holder"), trigger.c.redrive == literal_column("1")
    ),
)
_TELL_REDRIVE = update(trigger).where(among(trigger.c.pk, "pks")).values(redrive=0)
_REDRIVE = (
    update(trigger)
    .where(among(trigger.c.pk, "pks"), trigger.c.digest.is_not(None), trigger.c.state == word(W.WAITING))
    .values(redrive=1, attempts=0, next_at=None)
)
_FORGET_MINE = delete(trigger).where(
    among(trigger.c.pk, "pks"),
    trigger.c.owner == bindparam("holder"),
    trigger.c.state.in_(words([W.KILLING, W.ENDED])),
)
_FORGET_ENDED = delete(trigger).where(among(trigger.c.pk, "pks"), trigger.c.state == word(W.ENDED))
_RELEASE_ALL = (
    update(trigger)
    .where(trigger.c.owner == bindparam("holder"), trigger.c.state.in_(words([W.WAITING, W.KILLED])))
    .values(owner=None, claimed_at=None)
)
_RELEASE = _RELEASE_ALL.where(among(trigger.c.pk, "pks"))
_FORGET_REST = delete(trigger).where(
    trigger.c.owner == bindparam("holder"), trigger.c.state.in_(words([W.ENDED, W.KILLING]))
)
_HELD = select(trigger.c.pk, trigger.c.epoch).where(
    trigger.c.owner == bindparam("holder"), trigger.c.state == word(W.WAITING)
)
_DEAD = select(lease.c.owner).where(lease.c.kind == word("triggerer"), lease.c.expires_at <= bindparam("now"))
# The net: owners that nobody remembers at all.
_UNKNOWN = (
    select(trigger.c.owner)
    .where(trigger.c.owner.is_not(None), trigger.c.owner.not_in(select(lease.c.owner)))
    .group_by(trigger.c.owner)
)
_FORGET_LEASE = delete(lease).where(lease.c.owner == bindparam("holder"), lease.c.expires_at <= bindparam("now"))
_END_LEASE = delete(lease).where(lease.c.owner == bindparam("holder"))
_needs_host = and_(trigger.c.due_at.is_(None), trigger.c.state == word(W.WAITING))
_LOAD_ANY = select(func.count()).where(_needs_host)
_LOAD_PLAIN = select(func.count()).where(_needs_host, trigger.c.queue.is_(None))
_LOAD_QUEUES = select(func.count()).where(_needs_host, among(trigger.c.queue, "queues"))
_QUEUES = select(trigger.c.queue).where(_needs_host, trigger.c.queue.is_not(None)).group_by(trigger.c.queue)
_is_due = (trigger.c.due_at.is_not(None), trigger.c.state == word(W.WAITING))
_ANY_DUE = select(trigger.c.pk).where(*_is_due, trigger.c.due_at <= bindparam("now")).limit(1)
_NEXT_DUE = select(func.min(trigger.c.due_at)).where(*_is_due)
# The instance is locked, not the trigger: whoever ends the wait in another way locks it first, too.
_DUE = (
    select(trigger.c.pk, trigger.c.ti_pk, trigger.c.ends)
    .join(
        ti,
        and_(
            ti.c.pk == trigger.c.ti_pk,
            ti.c.attempt_id == trigger.c.attempt_id,
            ti.c.state == word(TaskState.DEFERRED),
        ),
    )
    .where(*_is_due, trigger.c.due_at <= bindparam("now"))
    .order_by(trigger.c.due_at)
    .limit(bindparam("most"))
    .with_for_update(of=ti, skip_locked=True, key_share=True)
)
_RESUME_DUE = (
    update(ti)
    .where(
        among(ti.c.pk, "instances"),
        trigger.c.ti_pk == ti.c.pk,
        trigger.c.attempt_id == ti.c.attempt_id,
        trigger.c.due_at.is_not(None),
        ti.c.state.in_(words(origins(TaskState.SCHEDULED, TaskState.DEFERRED))),
        ti.c.next_method.is_not(None),
    )
    .values(state=TaskState.SCHEDULED, scheduled_at=bindparam("now"), event=trigger.c.event, note=None)
)
_METHODLESS = select(ti.c.pk).where(among(ti.c.pk, "instances"), ti.c.next_method.is_(None))
_ONE = select(*RECORD).where(trigger.c.pk == bindparam("wanted"))
_WHOLE = select(trigger.c.ti_pk, trigger.c.run_pk, trigger.c.attempt_id).where(trigger.c.pk == bindparam("wanted"))
_INSTANCE = select(ti.c.try_number, ti.c.max_tries, ti.c.queue, ti.c.started_at, ti.c.task_id, ti.c.map_index)
_INSTANCE = _INSTANCE.where(ti.c.pk == bindparam("instance"))
_RUN = select(*RUN_COLUMNS, dag.c.fileloc).join(dag, dag.c.dag_id == dag_run.c.dag_id)
_RUN = _RUN.where(dag_run.c.pk == bindparam("run"))
_CANCEL = (
    update(ti)
    .where(ti.c.pk == bindparam("instance"), ti.c.attempt_id == bindparam("attempt"))
    .where(ti.c.state == word(TaskState.DEFERRED))
    .values(state=TaskState.FAILED, ended_at=bindparam("now"), note=bindparam("why"), event=None)
)
_SEALED = select(trigger.c.pk, trigger.c.kwargs).where(trigger.c.kwargs.is_not(None))
_RESEAL = update(trigger).where(trigger.c.pk == bindparam("wanted")).values(kwargs=bindparam("sealed"))


class Triggers:
    """What deferred tasks wait for."""

    def __init__(self, database: Database, dags: Dags, vault: Vault, *, clears_state: bool = False) -> None:
        self._database, self._dags, self._vault, self._clears_state = database, dags, vault, clears_state

    def claim(self, owner: str, *, most: int, queues: Sequence[str] | None, now: datetime) -> list[Trigger]:
        """Take up to `most` triggers nobody holds, the most urgent first. `queues` None: those without a queue.

        One whose task a person ended comes as KILLING: it is not to be run, only its `on_kill` is owed, once.
        One whose arguments cannot be opened says so: the owner can only fail it. Watchers that read one stream come
        together, though they be more than `most`.
        """
        moment = to_micros(now)
        with self._database.transaction() as tx:
            rows = claim_streams(tx, owner, _COLUMNS, most=most, queues=queues, now=moment)
            room = most - len(rows)
            if room <= 0:
                pass
            elif queues is None:
                rows += tx.all(_CLAIM_PLAIN, most=room, holder=owner, now=moment)
            elif EVERY_QUEUE in queues:
                rows += tx.all(_CLAIM_ANY, most=room, holder=owner, now=moment)
            else:
                rows += tx.all(_CLAIM_QUEUES, most=room, holder=owner, now=moment, queues=list(queues))
            return self._claimed(tx, rows)

    def claim_owed(self, owner: str, *, most: int, queues: Sequence[str] | None, now: datetime) -> list[Trigger]:
        """Take what needs no room: triggers of any queue whose `on_kill` is owed, and watchers of streams held here."""
        with self._database.read() as tx:
            if tx.one(_ANY_KILLED) is None and tx.one(ANY_FREE_STREAM) is None:
                return []
        moment = to_micros(now)
        with self._database.transaction() as tx:
            rows = tx.all(_CLAIM_KILLED, most=most, holder=owner, now=moment)
            rows += claim_streams(tx, owner, _COLUMNS, most=0, queues=queues, now=moment)
            return self._claimed(tx, rows)

    def settle(self, owner: str, firings: Sequence[Firing], *, now: datetime) -> list[bool]:
        """Store how waits ended, all in one transaction. False: the trigger is not this owner's any more.

        What watchers fired becomes events of their assets, in the same transaction.
        """
        tasks = [one for one in firings if not one.is_watch]
        watchers = [one for one in firings if one.is_watch]
        with self._database.transaction() as tx:
            of_tasks = iter(self._settle_tasks(tx, owner, tasks, now) if tasks else ())
            of_watchers = iter(settle_watchers(tx, owner, watchers, to_micros(now)) if watchers else ())
        return [next(of_watchers if one.is_watch else of_tasks) for one in firings]

    def _settle_tasks(self, tx: Tx, owner: str, firings: Sequence[Firing], now: datetime) -> list[bool]:
        waits = waits_of(tx, [one.id for one in firings])
        first: dict[int, Firing] = {}
        for one in firings:
            wait = waits.get(one.id)
            if wait is not None and wait.owner == owner and wait.epoch == one.epoch:
                first.setdefault(one.id, one)
        endings = [Ending(waits[pk], one.what) for pk, one in first.items() if not isinstance(one.what, Paced)]
        ended = {one.wait.pk for one, ok in zip(endings, self._end_waits(tx, endings, now), strict=True) if ok}
        forget_triggers(tx, sorted(ended))
        # The first event of a trigger counts; a second one comes too late even in the same batch.
        return [one.id in ended and first.get(one.id) is one for one in firings]

    def orders(self, owner: str) -> list[tuple[int, CancelReason]]:
        """Triggers of this owner that others ended, each told once; watchers, until they are forgotten."""
        with self._database.read() as tx:
            if not tx.all(_ORDERS, holder=owner):
                return []
        with self._database.transaction() as tx:
            rows = tx.all(_ORDERS, holder=owner)
            killed = [pk for pk, state, _ in rows if state == W.KILLED]
            ended = [pk for pk, state, digest in rows if state == W.ENDED and digest is None]
            # A watcher may have more to say until it has stopped, so its row stays until it is forgotten.
            unwanted = [pk for pk, state, digest in rows if state == W.ENDED and digest is not None]
            again = [pk for pk, state, _ in rows if state == "redrive"]
            if killed:
                tx.run(_TELL_KILLED, pks=killed)
            if ended:
                tx.run(_FORGET_ENDED, pks=ended)
            if again:
                tx.run(_TELL_REDRIVE, pks=again)
        told = {R.KILLED: killed, R.TIMEOUT: ended, R.UNWANTED: unwanted, R.RESTARTED: again}
        return [(pk, reason) for reason, pks in told.items() for pk in pks]

    def forget(self, owner: str, ids: Sequence[int]) -> None:
        """Their `on_kill` is over, or they have stopped because nobody wants them: nothing of them is left."""
        with self._database.transaction() as tx:
            tx.run(_FORGET_MINE, holder=owner, pks=list(ids))

    def release(self, owner: str, ids: Sequence[int] | None = None) -> int:
        """Give these triggers back, or all of them; others are woken. How many went."""
        with self._database.transaction() as tx:
            if ids is None:
                given = tx.run(_RELEASE_ALL, holder=owner)
                tx.run(_FORGET_REST, holder=owner)
            else:
                given = tx.run(_RELEASE, holder=owner, pks=list(ids))
            if given:
                tx.wake(TRIGGERER)
        return given

    def leave(self, owner: str) -> None:
        """Give everything back and end the lease, in one moment: whoever is woken sees who is left to share it."""
        with self._database.transaction() as tx:
            tx.run(_RELEASE_ALL, holder=owner)
            tx.run(_FORGET_REST, holder=owner)
            tx.run(_END_LEASE, holder=owner)
            tx.wake(TRIGGERER)

    def held(self, owner: str) -> dict[int, int]:
        """Id and epoch of every trigger that waits under this owner, as far as the store knows."""
        with self._database.read() as tx:
            return dict(tx.all(_HELD, holder=owner))

    def take_over(self, now: datetime, *, thorough: bool = False) -> int:
        """Free the triggers of triggerers whose lease is over, and of unknown ones if `thorough`; how many."""
        moment = to_micros(now)
        with self._database.read() as tx:
            gone = {row[0] for row in tx.all(_DEAD, now=moment)}
            if thorough:
                gone |= {row[0] for row in tx.all(_UNKNOWN)}
        if not gone:
            return 0
        freed = 0
        with self._database.transaction() as tx:
            for owner in sorted(gone):
                freed += tx.run(_RELEASE_ALL, holder=owner)
                tx.run(_FORGET_REST, holder=owner)
                tx.run(_FORGET_LEASE, holder=owner, now=moment)
            tx.wake(TRIGGERER)
        return freed

    def load(self, queues: Sequence[str] | None) -> int:
        """How many triggers, whoever holds them, need a host in these queues."""
        with self._database.read() as tx:
            if queues is None:
                row = tx.one(_LOAD_PLAIN)
            elif EVERY_QUEUE in queues:
                row = tx.one(_LOAD_ANY)
            else:
                row = tx.one(_LOAD_QUEUES, queues=list(queues))
        return int(row[0]) if row else 0

    def queues(self) -> list[str]:
        """The queues in which triggers wait."""
        with self._database.read() as tx:
            return sorted(row[0] for row in tx.all(_QUEUES))

    def fire_due(self, now: datetime, *, most: int) -> int:
        """Resume tasks whose moment has come; how many. Fewer than `most`: no other is due."""
        moment = to_micros(now)
        with self._database.read() as tx:
            if tx.one(_ANY_DUE, now=moment) is None:
                return 0
        with self._database.transaction() as tx:
            rows = tx.all(_DUE, now=moment, most=most)
            if not rows:
                return 0
            plain = {ti_pk: pk for pk, ti_pk, ends in rows if ends is None}
            odd = {row[0] for row in tx.all(_METHODLESS, instances=list(plain))}
            ending = {pk: Event(ends=TaskState(ends)) for pk, _, ends in rows if ends is not None}
            ending |= {plain.pop(ti_pk): Event() for ti_pk in odd}
            if plain:
                tx.run(_RESUME_DUE, instances=list(plain), now=moment)
            waits = waits_of(tx, list(ending)) if ending else {}
            self._end_waits(tx, [Ending(wait, ending[pk]) for pk, wait in waits.items()], now)
            forget_triggers(tx, [row[0] for row in rows])
            tx.wake(SCHEDULER)
        return len(rows)

    def _end_waits(self, tx: Tx, endings: Sequence[Ending], now: datetime) -> list[bool]:
        ended = end_waits(tx, self._dags, endings, now)
        if self._clears_state:
            forget_successes(tx, [one.wait.ti_pk for one in endings])
        return ended

    def next_due(self) -> datetime | None:
        """When the next task that waits for a moment goes on. None: none does."""
        with self._database.read() as tx:
            row = tx.one(_NEXT_DUE)
        return maybe_moment(row[0]) if row else None

    def attempt_of(self, trigger_id: int, *, now: datetime) -> Attempt | None:
        """The try that waits for this trigger, as its supervisor knew it. None: it is gone."""
        with self._database.read() as tx:
            found = tx.one(_WHOLE, wanted=trigger_id)
            instance = tx.one(_INSTANCE, instance=found[0]) if found else None
            run_row = tx.one(_RUN, run=found[1]) if found else None
            events = events_of_run(tx, to_run(run_row)) if run_row else ()
        if found is None or instance is None or run_row is None:
            return None
        number, most, queue, started_at, task_id, map_index = instance
        return Attempt(
            attempt_id=found[2],
            ti_pk=found[0],
            run=to_run(run_row),
            task_id=task_id,
            map_index=map_index,
            try_number=number,
            max_tries=most,
            queue=queue,
            fileloc=run_row[-1],
            start_date=maybe_moment(started_at) or now,
            should_retry=number <= most,
            events=events,
        )

    def start(self, tx: Tx, run: Run, task: TaskSpec, instances: Sequence[Instance], *, now: datetime) -> None:
        """Have scheduled instances wait for the task's start trigger before any worker has seen them."""
        wanted = task.start_trigger
        if wanted is None:
            raise UnknownId("start trigger of task", task.task_id)
        firsts = [
            Attempt(
                attempt_id=new_id(),
                ti_pk=instance.pk,
                run=run,
                task_id=task.task_id,
                map_index=instance.map_index,
                try_number=instance.try_number + 1,
                max_tries=task.retry.retries,
                queue=task.queue,
                fileloc="",
                start_date=now,
                execution_timeout=task.execution_timeout,
            )
            for instance in instances
        ]
        deferral = Deferral(
            classpath=wanted.classpath,
            kwargs=wanted.kwargs,
            method=wanted.method,
            next_kwargs=wanted.next_kwargs,
            timeout=wanted.timeout,
            queue=wanted.queue,
        )
        start_waiting(tx, self._vault, firsts, deferral, priority=task.priority, now=now, renders=wanted.renders)

    # --- for people ----------------------------------------------------------------------------------------------

    def all(
        self,
        *,
        dag_id: str | None = None,
        run_id: str | None = None,
        state: TriggerState | None = None,
        owner: str | None = None,
        limit: int | None = 100,
    ) -> list[TriggerRecord]:
        """Triggers in the order they were stored; `limit` None: all of them."""
        wanted = select(*RECORD).order_by(trigger.c.pk).limit(limit)
        given = (
            (trigger.c.dag_id, dag_id),
            (trigger.c.run_id, run_id),
            (trigger.c.state, state),
            (trigger.c.owner, owner),
        )
        for column, value in given:
            wanted = wanted if value is None else wanted.where(column == value)
        with self._database.read() as tx:
            return [to_record(row) for row in tx.query(wanted)]

    def get(self, trigger_id: int) -> TriggerRecord:
        """The trigger of that id; `UnknownId` if it is not there, which it no longer is once it has fired."""
        with self._database.read() as tx:
            row = tx.one(_ONE, wanted=trigger_id)
        if row is None:
            raise UnknownId("trigger", str(trigger_id))
        return to_record(row)

    def cancel(self, trigger_id: int, *, now: datetime) -> bool:
        """A person ends a wait: the task fails, without another try, and the trigger's `on_kill` runs.

        False: nothing waited for it any more."""
        with self._database.transaction() as tx:
            row = tx.one(_WHOLE, wanted=trigger_id)
            if row is None:
                raise UnknownId("trigger", str(trigger_id))
            ti_pk, run_pk, attempt_id = row
            if ti_pk is None:
                return False
            mark_dirty(tx, [run_pk])
            why = "a user cancelled what it waited for"
            if not tx.run(_CANCEL, instance=ti_pk, attempt=attempt_id, now=to_micros(now), why=why):
                return False
            kill_waits(tx, [ti_pk])
            tx.wake(SCHEDULER)
        return True

    def redrive(self, ids: Sequence[int]) -> int:
        """Have watchers begin anew: what their streams still owe them is delivered again. How many there are."""
        with self._database.transaction() as tx:
            count = tx.run(_REDRIVE, pks=list(ids))
            tx.wake(TRIGGERER)
        return count

    def reseal(self) -> int:
        """Seal every trigger's arguments with the newest key; how many there are."""
        with self._database.transaction() as tx:
            rows = tx.all(_SEALED)
            plain = [(pk, self._vault.open(sealed, f"the arguments of trigger {pk}")) for pk, sealed in rows]
            tx.each(_RESEAL, [{"wanted": pk, "sealed": self._vault.seal(value)} for pk, value in plain])
        return len(rows)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _claimed(self, tx: Tx, rows: Sequence[Row]) -> list[Trigger]:
        killed = [row[0] for row in rows if row[4] == W.KILLED]
        if killed:
            tx.run(_TELL_KILLED, pks=killed)
        opened = _with_assets(tx, [self._opened(row) for row in rows])
        return sorted(opened, key=lambda one: (-one.priority, one.id))

    def _opened(self, row: Row) -> Trigger:
        try:
            return _to_trigger(row, self._arguments(row[0], row[3]))
        except (SecretUnreadable, msgspec.DecodeError, TypeError) as error:
            return msgspec.structs.replace(_to_trigger(row, {}), unreadable=str(error))

    def _arguments(self, pk: int, sealed: str | None) -> dict[str, Any]:
        what = f"the arguments of trigger {pk}"
        found = msgspec.json.decode(self._vault.open(sealed, what) or "{}")
        if isinstance(found, str):
            # A runtime of another language may have encrypted them itself, with the same key.
            found = msgspec.json.decode(self._vault.open_foreign(found, what))
        if not isinstance(found, dict):
            raise TypeError(f"{what} are not a map")
        return found


def _to_trigger(row: Row, kwargs: dict[str, Any]) -> Trigger:
    state = W.KILLING if row[4] == W.KILLED else TriggerState(row[4])
    return Trigger(
        id=row[0],
        epoch=row[1],
        classpath=row[2],
        kwargs=kwargs,
        state=state,
        **_of_task(row[5:12]),
        queue=row[12],
        priority=row[13],
        created_at=from_micros(row[14]),
        deadline_at=maybe_moment(row[15]),
        renders=bool(row[16]),
        watch=None if row[17] is None else _to_watch(row[17:]),
    )


def _of_task(columns: Row) -> dict[str, Any]:
    """What a trigger knows of its task. One that watches for assets has none."""
    if columns[0] is None:
        return {}
    return dict(zip(_TASK_FIELDS, columns, strict=True))


def _to_watch(columns: Row) -> Watch:
    digest, asset, name, stream_key, attempts, next_at = columns
    return Watch(
        digest=digest,
        asset=asset,
        name=name,
        stream_key=stream_key,
        attempts=attempts,
        next_at=maybe_moment(next_at),
    )


def _with_assets(tx: Tx, claimed: list[Trigger]) -> list[Trigger]:
    """The same, watchers with the assets that they serve."""
    served = served_assets(tx, (one.watch.digest for one in claimed if one.watch is not None))
    if not served:
        return claimed
    replace = msgspec.structs.replace
    return [
        one if one.watch is None else replace(one, watch=replace(one.watch, assets=tuple(served[one.watch.digest])))
        for one in claimed
    ]
