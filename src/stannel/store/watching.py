"""Triggers that watch for assets: who may run them, what they fire, and how they fare.

Everything here runs inside a transaction of its caller. Watchers that read one stream always have one owner: two would
each see only a part of it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, and_, bindparam, func, select, text, true, update

from stannel.model.asset import EventSource, NewEvent, ThisAsset
from stannel.model.moments import maybe_micros
from stannel.model.state_store import AssetScope
from stannel.model.states import TriggerState
from stannel.model.trigger import EVERY_QUEUE, Event, Failure, Firing, Paced
from stannel.store.new_events import Registered, register_events
from stannel.store.schema import asset, trigger, watcher
from stannel.store.sql import Duty, Row, Tx, among, word, words
from stannel.store.state_stores import AssetKeeper, save_asset_state

W = TriggerState
_LONGEST_ERROR = 2000
_WRITER = {"kind": "watcher"}

_is_free = and_(trigger.c.owner.is_(None), trigger.c.state == word(W.WAITING), trigger.c.stream_key.is_not(None))
ANY_FREE_STREAM = select(trigger.c.pk).where(_is_free).limit(1)
_HOLDERS = (
    select(trigger.c.stream_key, trigger.c.queue, trigger.c.owner)
    .where(trigger.c.stream_key.is_not(None), trigger.c.owner.is_not(None))
    .group_by(trigger.c.stream_key, trigger.c.queue, trigger.c.owner)
)


def _free_streams(in_queue: ColumnElement[bool]) -> Any:
    return (
        select(trigger.c.stream_key, trigger.c.queue, func.count())
        .where(_is_free, in_queue)
        .group_by(trigger.c.stream_key, trigger.c.queue)
        .order_by(func.min(trigger.c.pk))
    )


_FREE_PLAIN = _free_streams(trigger.c.queue.is_(None))
_FREE_QUEUES = _free_streams(among(trigger.c.queue, "queues"))
_FREE_ANY = _free_streams(true())
_in_place = func.coalesce(trigger.c.queue, "") == bindparam("place")
_TAKE = (
    update(trigger)
    .where(_is_free, trigger.c.stream_key == bindparam("wanted"), _in_place)
    .values(owner=bindparam("holder"), epoch=trigger.c.epoch + 1, claimed_at=bindparam("now"))
)
_is_mine = and_(
    trigger.c.pk == bindparam("wanted"), trigger.c.owner == bindparam("holder"), trigger.c.epoch == bindparam("held")
)
# One that is being stopped may still tell what it fired before: for assets whose DAG was paused it is kept.
_NOTE_EVENTS = (
    update(trigger)
    .where(_is_mine, trigger.c.state.in_(words([W.WAITING, W.ENDED])))
    .values(events=trigger.c.events + bindparam("count"), last_event_at=bindparam("now"), attempts=0, next_at=None)
    .returning(trigger.c.digest)
)
_NOTE_ALL_EVENTS = text(
    'UPDATE "trigger" SET events = events + given.count, last_event_at = :now, attempts = 0, next_at = NULL'
    " FROM jsonb_to_recordset(CAST(:lives AS jsonb)) AS given(wanted bigint, held integer, count bigint)"
    ' WHERE "trigger".pk = given.wanted AND "trigger".owner = :holder AND "trigger".epoch = given.held'
    ' AND "trigger".state IN (\'waiting\', \'ended\') RETURNING "trigger".pk, "trigger".epoch, "trigger".digest'
)
_NOTE_FAILURE = (
    update(trigger)
    .where(_is_mine, trigger.c.state == word(W.WAITING))
    .values(attempts=trigger.c.attempts + 1, next_at=bindparam("again"), last_error=bindparam("error"))
)
_NOTE_TROUBLE = update(trigger).where(_is_mine).values(trouble=bindparam("what"))
_SERVED = (
    select(watcher.c.digest, asset.c.name, asset.c.uri)
    .join(asset, asset.c.pk == watcher.c.asset_pk)
    .where(among(watcher.c.digest, "digests"))
    .group_by(watcher.c.digest, asset.c.name, asset.c.uri)
    .order_by(asset.c.name, asset.c.uri)
)


def claim_streams(
    tx: Tx, owner: str, columns: Sequence[Any], *, most: int, queues: Sequence[str] | None, now: int
) -> list[Row]:
    """Take free watchers that share a stream with all others of their stream, as many streams as there is room for.

    Those of a stream that this owner has already are taken though there is no room: nobody else may.
    """
    if tx.one(ANY_FREE_STREAM) is None:
        return []
    tx.alone(Duty.CLAIM_STREAMS)
    held: dict[tuple[str, str | None], set[str]] = {}
    for key, queue, holder in tx.all(_HOLDERS):
        held.setdefault((key, queue), set()).add(holder)
    take = _TAKE.returning(*columns)
    claimed: list[Row] = []
    for key, queue, _ in _free(tx, queues):
        holders = held.get((key, queue), set())
        if holders == {owner} or (not holders and len(claimed) < most):
            claimed += tx.all(take, wanted=key, place=queue or "", holder=owner, now=now)
    return claimed


def _free(tx: Tx, queues: Sequence[str] | None) -> list[Row]:
    if queues is None:
        return tx.all(_FREE_PLAIN)
    if EVERY_QUEUE in queues:
        return tx.all(_FREE_ANY)
    return tx.all(_FREE_QUEUES, queues=list(queues))


def settle_watchers(tx: Tx, owner: str, firings: Sequence[Firing], now: int) -> list[bool]:
    """Store what watchers fired, as events of every asset they serve. False: it is not this owner's any more."""
    served = _note_events(tx, owner, firings, now)
    events = [
        _new_event(one.what, *place)
        for one in firings
        if isinstance(one.what, Event)
        for place in served.get((one.id, one.epoch), ())
    ]
    _keep_states(tx, zip(events, register_events(tx, events, now), strict=True), now)
    return [
        bool(served.get((one.id, one.epoch))) if isinstance(one.what, Event) else _note(tx, owner, one)
        for one in firings
    ]


def _keep_states(tx: Tx, stored: Iterable[tuple[NewEvent, Registered | None]], now: int) -> None:
    """Keep what events say of their asset's state. One that is told again says something old."""
    for event, found in stored:
        if event.state and found is not None and found.is_new:
            one = found.asset
            save_asset_state(tx, AssetKeeper(AssetScope(one.pk, one.name, one.uri), _WRITER), event.state, now)


def served_assets(tx: Tx, digests: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    """The name and URI of every asset that the watchers of these digests serve."""
    assets: dict[str, list[tuple[str, str]]] = {}
    wanted = sorted(set(digests))
    if wanted:
        for digest, name, uri in tx.all(_SERVED, digests=wanted):
            assets.setdefault(digest, []).append((name, uri))
    return assets


def _note_events(
    tx: Tx, owner: str, firings: Sequence[Firing], now: int
) -> dict[tuple[int, int], list[tuple[str, str]]]:
    """The assets of each watcher that may speak: by its id and epoch."""
    counts = Counter((one.id, one.epoch) for one in firings if isinstance(one.what, Event))
    found = {} if not counts else _counted(tx, owner, counts, now)
    assets = served_assets(tx, found.values())
    return {life: assets.get(digest, []) for life, digest in found.items()}


def _counted(tx: Tx, owner: str, counts: Mapping[tuple[int, int], int], now: int) -> dict[tuple[int, int], str]:
    """The digests of those that are this owner's, whose events are counted now."""
    lives = [{"wanted": pk, "held": epoch, "count": count} for (pk, epoch), count in sorted(counts.items())]
    if not tx.is_sqlite:
        given = msgspec.json.encode(lives).decode()
        return {
            (pk, epoch): digest for pk, epoch, digest in tx.all(_NOTE_ALL_EVENTS, holder=owner, now=now, lives=given)
        }
    rows = tx.each_row(_NOTE_EVENTS, [{**life, "holder": owner, "now": now} for life in lives])
    return {(life["wanted"], life["held"]): row[0] for life, row in zip(lives, rows, strict=True) if row}


def _new_event(what: Event, name: str, uri: str) -> NewEvent:
    return NewEvent(
        of=ThisAsset(name, uri),
        source=EventSource.WATCHER,
        extra={**(what.extra or {}), "from_trigger": True, "payload": what.payload},
        identity=what.identity,
        timestamp=what.timestamp,
        partition_key=what.key,
        state=what.state,
    )


def _note(tx: Tx, owner: str, one: Firing) -> bool:
    who: dict[str, Any] = {"wanted": one.id, "holder": owner, "held": one.epoch}
    if isinstance(one.what, Paced):
        return tx.run(_NOTE_TROUBLE, **who, what=one.what.trouble) > 0
    assert isinstance(one.what, Failure)
    return tx.run(_NOTE_FAILURE, **who, again=maybe_micros(one.again_at), error=_in_short(one.what)) > 0


def _in_short(failure: Failure) -> str:
    lines = [line.strip() for line in failure.traceback or () if line.strip()]
    if not lines:
        return failure.error[:_LONGEST_ERROR]
    return lines[-1][:_LONGEST_ERROR]
