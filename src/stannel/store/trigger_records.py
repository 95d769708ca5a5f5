"""Triggers as people look at them: everything but their arguments, which may be secrets."""

from datetime import datetime

import msgspec

from stannel.model.ids import UNMAPPED
from stannel.model.moments import from_micros, maybe_moment
from stannel.model.states import TriggerState
from stannel.store.schema import trigger
from stannel.store.sql import Row


class WatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How a trigger that watches for assets fares. `trouble`: it is held back, because it fires without end."""

    asset: str
    name: str
    stream_key: str | None
    attempts: int
    next_at: datetime | None
    last_error: str | None
    last_event_at: datetime | None
    events: int
    trouble: str | None


class TriggerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger as people look at it: never its arguments. `due_at`: it only waits for that moment."""

    id: int
    state: TriggerState
    classpath: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int
    queue: str | None
    priority: int
    created_at: datetime
    deadline_at: datetime | None
    due_at: datetime | None
    owner: str | None
    claimed_at: datetime | None
    watch: WatchRecord | None = None


RECORD = (
    trigger.c.pk,
    trigger.c.state,
    trigger.c.classpath,
    trigger.c.dag_id,
    trigger.c.run_id,
    trigger.c.task_id,
    trigger.c.map_index,
    trigger.c.try_number,
    trigger.c.queue,
    trigger.c.priority,
    trigger.c.created_at,
    trigger.c.deadline_at,
    trigger.c.due_at,
    trigger.c.owner,
    trigger.c.claimed_at,
    trigger.c.digest,
    trigger.c.asset,
    trigger.c.watcher,
    trigger.c.stream_key,
    trigger.c.attempts,
    trigger.c.next_at,
    trigger.c.last_error,
    trigger.c.last_event_at,
    trigger.c.events,
    trigger.c.trouble,
)


def to_record(row: Row) -> TriggerRecord:
    """The trigger whose `RECORD` columns these are."""
    return TriggerRecord(
        id=row[0],
        state=TriggerState(row[1]),
        classpath=row[2],
        dag_id=row[3] or "",
        run_id=row[4] or "",
        task_id=row[5] or "",
        map_index=UNMAPPED if row[6] is None else row[6],
        try_number=row[7] or 0,
        queue=row[8],
        priority=row[9],
        created_at=from_micros(row[10]),
        deadline_at=maybe_moment(row[11]),
        due_at=maybe_moment(row[12]),
        owner=row[13],
        claimed_at=maybe_moment(row[14]),
        watch=None if row[15] is None else _to_watch_record(row[16:]),
    )


def _to_watch_record(columns: Row) -> WatchRecord:
    asset, name, stream_key, attempts, next_at, last_error, last_event_at, events, trouble = columns
    return WatchRecord(
        asset=asset,
        name=name,
        stream_key=stream_key,
        attempts=attempts,
        next_at=maybe_moment(next_at),
        last_error=last_error,
        last_event_at=maybe_moment(last_event_at),
        events=events,
        trouble=trouble,
    )
