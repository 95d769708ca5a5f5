"""Assets as data: what a DAG names, what it waits for, how waiting events become runs, and the events themselves."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, assert_never

import msgspec

from stannel.model.ids import UNMAPPED

LONGEST_PARTITION_KEY = 250


class AssetKey(msgspec.Struct, frozen=True, order=True):
    """Which asset: both together are its identity."""

    name: str
    uri: str


class AssetWanted(msgspec.Struct, frozen=True, tag_field="kind"):
    """Base of everything that names assets: in a schedule, or as inlet or outlet of a task."""


class ThisAsset(AssetWanted, frozen=True, tag="asset"):
    """An asset by its whole identity."""

    name: str
    uri: str


class AssetNamed(AssetWanted, frozen=True, tag="name"):
    """The active asset of that name, whoever defines it."""

    name: str


class AssetAt(AssetWanted, frozen=True, tag="uri"):
    """The active asset of that URI, whoever defines it."""

    uri: str


class AnyOfAlias(AssetWanted, frozen=True, tag="alias"):
    """Any asset that was ever emitted through the alias."""

    name: str


class AllOf(AssetWanted, frozen=True, tag="all"):
    """Every one of them."""

    of: tuple["Condition", ...]


class AnyOf(AssetWanted, frozen=True, tag="any"):
    """At least one of them."""

    of: tuple["Condition", ...]


Reference = ThisAsset | AssetNamed | AssetAt | AnyOfAlias
Condition = ThisAsset | AssetNamed | AssetAt | AnyOfAlias | AllOf | AnyOf


class Update(msgspec.Struct, frozen=True):
    """The asset of one event, as far as a condition asks; `aliases` are all through which it is known."""

    name: str
    uri: str
    aliases: frozenset[str] = frozenset()


def matches(wanted: Reference, update: Update) -> bool:
    """Whether an event of that asset is what the reference names."""
    match wanted:
        case ThisAsset(name, uri):
            return (name, uri) == (update.name, update.uri)
        case AssetNamed(name):
            return name == update.name
        case AssetAt(uri):
            return uri == update.uri
        case AnyOfAlias(name):
            return name in update.aliases
        case _:
            assert_never(wanted)


def is_met(condition: Condition, updates: Iterable[Update]) -> bool:
    """Whether events of these assets are enough. More events never make it false. An empty `AllOf` is never met."""
    known = set(updates)
    return _is_met(condition, lambda wanted: any(matches(wanted, update) for update in known))


def _is_met(condition: Condition, is_there: Callable[[Reference], bool]) -> bool:
    match condition:
        case AllOf(of=parts):
            return bool(parts) and all(_is_met(part, is_there) for part in parts)
        case AnyOf(of=parts):
            return any(_is_met(part, is_there) for part in parts)
        case _:
            return is_there(condition)


def missing(condition: Condition, updates: Iterable[Update]) -> list[Reference]:
    """What is still waited for before the condition can be met. Empty: nothing."""
    known = set(updates)
    if is_met(condition, known):
        return []
    return [one for one in references(condition) if not any(matches(one, update) for update in known)]


def references(condition: Condition) -> Iterator[Reference]:
    """Everything a condition names, in the author's order."""
    match condition:
        case AllOf(of=parts) | AnyOf(of=parts):
            for part in parts:
                yield from references(part)
        case _:
            yield condition


def in_words(condition: Condition) -> str:
    """The condition as its author would write it."""
    match condition:
        case AllOf(of=parts):
            return " & ".join(_inner(part) for part in parts)
        case AnyOf(of=parts):
            return " | ".join(_inner(part) for part in parts)
        case ThisAsset(name) | AssetNamed(name):
            return name
        case AssetAt(uri):
            return uri
        case AnyOfAlias(name):
            return f"alias {name}"
        case _:
            assert_never(condition)


def _inner(part: Condition) -> str:
    return f"({in_words(part)})" if isinstance(part, AllOf | AnyOf) else in_words(part)


class Grouping(StrEnum):
    """Which waiting events make up one run."""

    # All that wait when a scheduler looks.
    QUEUED = "queued"
    # As few as meet the condition.
    EACH = "each"
    # Those within some time of the first.
    WINDOW = "window"
    # Those that follow each other without a pause.
    BURST = "burst"


class Consumption(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How waiting events become runs. Durations are seconds; `most` is the number of events that closes a group."""

    grouping: Grouping = Grouping.QUEUED
    most: int | None = None
    # WINDOW: how long after its first event a group closes. BURST: how long a pause closes it.
    seconds: float = 0.0
    # BURST: how long after its first event a group closes even without a pause.
    longest: float | None = None
    # Only the newest event of each asset counts; the older ones of its group are superseded by it.
    latest: bool = False
    # Events with the same key make up groups of their own; ordered: one run of a key after the other.
    by_key: bool = False
    ordered: bool = True
    # No more than so many runs in so many seconds.
    rate_runs: int | None = None
    rate_seconds: float = 0.0


class WatcherSpec(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A trigger that watches for an asset. `kwargs` are encoded; where a DAG is stored they are left out."""

    name: str
    classpath: str
    kwargs: dict[str, Any] = {}
    queue: str | None = None
    # Watchers with the same key read one stream together.
    stream_key: str | None = None


class AssetSpec(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An asset as a DAG file defines it."""

    name: str
    uri: str
    group: str = "asset"
    extra: dict[str, Any] = {}
    watchers: tuple[WatcherSpec, ...] = ()

    @property
    def key(self) -> AssetKey:
        return AssetKey(self.name, self.uri)


class AliasSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A name under which tasks emit events of assets that are only known when they run."""

    name: str
    group: str = "asset"


class EventSource(StrEnum):
    """Who told of an event."""

    TASK = "task"
    WATCHER = "watcher"
    PERSON = "person"


class Emitted(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An event of an outlet, as the end of a task tells it. An asset that came through an alias may be a new one."""

    of: ThisAsset | AssetNamed | AssetAt
    extra: dict[str, Any] = {}
    asset_extra: dict[str, Any] = {}
    aliases: tuple[str, ...] = ()
    partition_key: str | None = None


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to be stored. Equal identities of one asset are one event; without one, it is an event of its own.

    `timestamp` is when it happened, if that is known better than by its arrival. `state` is kept with the asset.
    """

    of: ThisAsset | AssetNamed | AssetAt
    source: EventSource
    extra: dict[str, Any] = {}
    asset_extra: dict[str, Any] = {}
    identity: str | None = None
    timestamp: datetime | None = None
    partition_key: str | None = None
    aliases: tuple[str, ...] = ()
    dag_id: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    map_index: int | None = None
    state: dict[str, Any] | None = None


class ConsumedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a run consumed, as its tasks see it."""

    name: str
    uri: str
    asset_extra: dict[str, Any]
    extra: dict[str, Any]
    timestamp: datetime
    aliases: tuple[str, ...] = ()
    partition_key: str | None = None
    dag_id: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    map_index: int | None = UNMAPPED


def plain_events(outlets: Iterable[Reference]) -> tuple[Emitted, ...]:
    """What the success of a task tells of its outlets when nobody says more; an alias names no asset by itself."""
    return tuple(Emitted(of=one) for one in outlets if not isinstance(one, AnyOfAlias))


def is_partition_key(key: object) -> bool:
    """Whether a key may be one: a text that is not blank, and not too long."""
    return isinstance(key, str) and bool(key.strip()) and len(key) <= LONGEST_PARTITION_KEY


def merged_assets(specs: Iterable[AssetSpec]) -> tuple[AssetSpec, ...]:
    """One spec for each asset: what was said last about it, and every watcher anybody gave it."""
    found: dict[AssetKey, AssetSpec] = {}
    for spec in specs:
        known = found.get(spec.key)
        watchers = (*(known.watchers if known else ()), *spec.watchers)
        found[spec.key] = msgspec.structs.replace(spec, watchers=tuple(_distinct(watchers)))
    return tuple(found[key] for key in sorted(found))


def _distinct(watchers: Iterable[WatcherSpec]) -> Iterator[WatcherSpec]:
    seen: list[WatcherSpec] = []
    for one in watchers:
        if one not in seen:
            seen.append(one)
            yield one


def without_secrets(specs: Iterable[AssetSpec]) -> tuple[AssetSpec, ...]:
    """The same assets without the arguments of their watchers, which may hold passwords."""
    return tuple(
        msgspec.structs.replace(
            spec, watchers=tuple(msgspec.structs.replace(watcher, kwargs={}) for watcher in spec.watchers)
        )
        for spec in specs
    )


def as_map(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one: what other languages leave out or send as nil."""
    return value if isinstance(value, Mapping) else {}
