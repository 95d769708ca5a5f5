"""Which waiting asset events make up which runs. Pure: the same events give the same runs, whoever looks, and when.

Groups are cut by when events arrived, never by when somebody looked. Only Airflow's own rule (`Grouping.QUEUED`) takes
whatever is there, and so depends on the moment.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from stannel.model.asset import Condition, Consumption, Grouping, Update, is_met

_SECOND = 1_000_000
AIRFLOW = Consumption()


class Waiting(msgspec.Struct, frozen=True):
    """An event in the queue of a DAG. Moments are microseconds."""

    event: int
    arrived: int
    update: Update
    key: str | None = None


class Group(msgspec.Struct, frozen=True):
    """The events of one run, in the order they arrived; `due` is when the group was complete."""

    events: list[Waiting]
    due: int
    superseded: list[Waiting] = []

    @property
    def key(self) -> str | None:
        return self.events[0].key

    @property
    def everything(self) -> list[Waiting]:
        return [*self.superseded, *self.events]


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What the DAG did before: places for new runs, when the newest runs by assets were made, keys being worked on."""

    room: int
    recent: Sequence[int] = ()
    busy_keys: frozenset[str | None] = frozenset()


class Decision(msgspec.Struct, frozen=True):
    """Runs to make now, and when to look again: at a moment, or when a run ends. Neither: when an event arrives."""

    runs: list[Group]
    look_at: int | None = None
    at_end_of_run: bool = False


def consume(
    waiting: Iterable[Waiting], condition: Condition, policy: Consumption | None, *, now: int, past: Past
) -> Decision:
    """Decide what becomes of the events that wait for a DAG."""
    policy = policy or AIRFLOW
    ready: list[Group] = []
    moments: list[int] = []
    is_held = False
    for key, lane in _lanes(sorted(waiting, key=_order), policy):
        if policy.by_key and policy.ordered and key in past.busy_keys:
            is_held = True
            continue
        groups, closes_at = _groups(lane, condition, policy, now)
        if closes_at is not None:
            moments.append(closes_at)
        if policy.by_key and policy.ordered and len(groups) > 1:
            groups, is_held = groups[:1], True
        ready += groups
    ready.sort(key=lambda group: (group.due, _order(group.events[0])))
    allowed, next_allowed = _within_rate(len(ready), policy, now, past.recent)
    # What finds no room waits for the end of a run; what the rate forbids has its moment.
    if past.room < len(ready) and past.room <= allowed:
        is_held = True
    elif next_allowed is not None:
        moments.append(next_allowed)
    runs = [_newest_only(group) if policy.latest else group for group in ready[: min(allowed, past.room)]]
    return Decision(runs, min(moments, default=None), is_held)


def _order(one: Waiting) -> tuple[int, int]:
    return one.arrived, one.event


def _lanes(waiting: Sequence[Waiting], policy: Consumption) -> Iterator[tuple[str | None, list[Waiting]]]:
    if not policy.by_key:
        if waiting:
            yield None, list(waiting)
        return
    lanes: dict[str | None, list[Waiting]] = {}
    for one in waiting:
        lanes.setdefault(one.key, []).append(one)
    yield from lanes.items()


class _OpenGroup:
    """Events that arrived one after the other and may still be joined by the next."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self.events: list[Waiting] = []
        self._updates: set[Update] = set()
        self.is_met = False

    def add(self, one: Waiting) -> None:
        self.events.append(one)
        if not self.is_met and one.update not in self._updates:
            self._updates.add(one.update)
            self.is_met = is_met(self._condition, self._updates)

    def closed(self, due: int) -> Group:
        return Group(self.events, max(due, self.events[-1].arrived))


def _groups(
    lane: Sequence[Waiting], condition: Condition, policy: Consumption, now: int
) -> tuple[list[Group], int | None]:
    """The complete groups of a lane, and when the last one will be if only time is missing for it."""
    done: list[Group] = []
    current = _OpenGroup(condition)
    for one in lane:
        limit = _closes_at(current.events, policy) if current.is_met else None
        if limit is not None and one.arrived > limit:
            done.append(current.closed(limit))
            current = _OpenGroup(condition)
        current.add(one)
        if current.is_met and _is_full(current.events, policy):
            done.append(current.closed(one.arrived))
            current = _OpenGroup(condition)
    if not current.is_met:
        return done, None
    limit = _closes_at(current.events, policy)
    if limit is None or limit < now:
        return [*done, current.closed(limit or 0)], None
    return done, limit + 1


def _is_full(events: Sequence[Waiting], policy: Consumption) -> bool:
    if policy.grouping is Grouping.EACH:
        return True
    return policy.most is not None and len(events) >= policy.most


def _closes_at(events: Sequence[Waiting], policy: Consumption) -> int | None:
    """When time completes this group. None: time has nothing to do with it."""
    match policy.grouping:
        case Grouping.WINDOW:
            return events[0].arrived + int(policy.seconds * _SECOND)
        case Grouping.BURST:
            quiet = events[-1].arrived + int(policy.seconds * _SECOND)
            longest = None if policy.longest is None else events[0].arrived + int(policy.longest * _SECOND)
            return quiet if longest is None else min(quiet, longest)
        case _:
            return None


def _within_rate(wanted: int, policy: Consumption, now: int, recent: Sequence[int]) -> tuple[int, int | None]:
    """How many runs may be made now, and when the next one may be."""
    if policy.rate_runs is None:
        return wanted, None
    span = int(policy.rate_seconds * _SECOND)
    within = sorted(moment for moment in recent if moment + span > now)
    free = max(policy.rate_runs - len(within), 0)
    if wanted <= free:
        return wanted, None
    # The slots taken now are free again one span from now; older ones before.
    taken = [*within, *([now] * free)]
    return free, taken[len(taken) - policy.rate_runs] + span


def _newest_only(group: Group) -> Group:
    newest = {(one.update.name, one.update.uri): one for one in group.events}
    kept = sorted(newest.values(), key=_order)
    chosen = {one.event for one in kept}
    return Group(kept, group.due, [one for one in group.events if one.event not in chosen])
