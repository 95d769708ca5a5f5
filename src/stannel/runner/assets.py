"""Assets inside a running task: what started its run, what its inlets had before, what it says of its outlets."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Self, overload

from stannel.model.asset import LONGEST_PARTITION_KEY, is_partition_key
from stannel.protocol.data import AssetEventDagRunReference, AssetEventResponse, AssetProfile
from stannel.protocol.replies import AssetEventsResult
from stannel.protocol.requests import (
    GetAssetEventByAsset,
    GetAssetEventByAssetAlias,
    GetDagRun,
    ValidateInletsAndOutlets,
)
from stannel.sdk import comms, serde
from stannel.sdk.assets.definition import Asset, AssetAlias, AssetLike, AssetNameRef, AssetUriRef, Metadata
from stannel.sdk.exceptions import AirflowInactiveAssetInInletOrOutletException


class AssetEvent:
    """An event as task code sees it. `source_dag_run` is asked for when it is read."""

    def __init__(self, told: AssetEventDagRunReference | AssetEventResponse) -> None:
        self.asset = Asset(told.asset.name, told.asset.uri, extra=serde.decode(told.asset.extra or {}))
        self.extra: dict[str, Any] = serde.decode(told.extra or {})
        self.timestamp: datetime = told.timestamp
        self.source_dag_id, self.source_task_id = told.source_dag_id, told.source_task_id
        self.source_run_id, self.source_map_index = told.source_run_id, told.source_map_index
        self.partition_key = told.partition_key
        aliases = told.source_aliases if isinstance(told, AssetEventDagRunReference) else []
        self.source_aliases = [AssetAlias(one.name) for one in aliases]

    @property
    def uri(self) -> str:
        return self.asset.uri

    @property
    def source_dag_run(self) -> Any:
        """The run whose task emitted it. None: no task did."""
        if self.source_dag_id is None or self.source_run_id is None:
            return None
        return comms.ask(GetDagRun(self.source_dag_id, self.source_run_id))

    def __repr__(self) -> str:
        return f"AssetEvent({self.asset.name!r}, {self.timestamp.isoformat()}, extra={self.extra!r})"


def _means(wanted: Any, event: AssetEvent) -> bool:
    match wanted:
        case Asset(name=name, uri=uri):
            return (event.asset.name, event.asset.uri) == (name, uri)
        case AssetNameRef(name=name):
            return event.asset.name == name
        case AssetUriRef(uri=uri):
            return event.asset.uri == uri
        case AssetAlias():
            return wanted in event.source_aliases
        case _:
            raise KeyError(f"events are looked up by an asset, a reference or an alias, not by {wanted!r}")


class TriggeringAssetEvents(Mapping[Any, list[AssetEvent]]):
    """The events that this run consumed, by asset; an alias or a reference finds them, too."""

    def __init__(self, events: Sequence[AssetEventDagRunReference]) -> None:
        self._events = [AssetEvent(one) for one in events]

    def __getitem__(self, key: Any) -> list[AssetEvent]:
        found = [one for one in self._events if _means(key, one)]
        if not found:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[Asset]:
        return iter({(one.asset.name, one.asset.uri): one.asset for one in self._events}.values())

    def __len__(self) -> int:
        return len({(one.asset.name, one.asset.uri) for one in self._events})

    def __repr__(self) -> str:
        return f"TriggeringAssetEvents({dict(self.items())!r})"


class InletEvents:
    """`inlet_events[asset]`: past events of an asset, an alias or a reference; a number is the place of an inlet."""

    def __init__(self, inlets: Sequence[Any]) -> None:
        self._inlets = inlets

    def __getitem__(self, key: Any) -> "PastEvents":
        wanted = self._inlets[key] if isinstance(key, int) else key
        if not isinstance(wanted, AssetLike):
            raise KeyError(f"inlet_events is read by an asset, an alias or a reference, not by {wanted!r}")
        return PastEvents(wanted)

    def __iter__(self) -> Iterator[Any]:
        return (one for one in self._inlets if isinstance(one, AssetLike))

    def __len__(self) -> int:
        return sum(isinstance(one, AssetLike) for one in self._inlets)


class PastEvents(Sequence[AssetEvent]):
    """Events of the past, the oldest first. They are asked for when the first is read; each filter gives a new list."""

    def __init__(self, of: AssetLike, conditions: Mapping[str, Any] | None = None) -> None:
        self._of, self._conditions = of, dict(conditions or {})
        self._found: list[AssetEvent] | None = None

    def after(self, moment: datetime | str) -> Self:
        return self._with(after=_moment(moment))

    def before(self, moment: datetime | str) -> Self:
        return self._with(before=_moment(moment))

    def ascending(self, is_ascending: bool = True) -> Self:
        return self._with(ascending=is_ascending)

    def limit(self, most: int) -> Self:
        return self._with(limit=most)

    def partition_key(self, key: str) -> Self:
        return self._with(partition_key=key)

    def partition_key_regexp_pattern(self, pattern: str) -> Self:
        re.compile(pattern)
        return self._with(pattern=pattern)

    def extra(self, key: str, value: Any) -> Self:
        return self._with(extra={**self._conditions.get("extra", {}), key: str(value)})

    def _with(self, **conditions: Any) -> Self:
        return type(self)(self._of, {**self._conditions, **conditions})

    def _events(self) -> list[AssetEvent]:
        if self._found is None:
            self._found = self._asked()
        return self._found

    def _asked(self) -> list[AssetEvent]:
        conditions = dict(self._conditions)
        # An author's pattern may take for ever, so it is matched here and not where everybody is answered.
        pattern, most = conditions.pop("pattern", None), conditions.get("limit")
        if pattern is not None:
            conditions["limit"] = None
        answer: AssetEventsResult = comms.ask(self._question(conditions))
        found = [AssetEvent(one) for one in answer.asset_events]
        if pattern is not None:
            found = [one for one in found if one.partition_key is not None and re.search(pattern, one.partition_key)]
        return found[:most]

    def _question(self, conditions: Mapping[str, Any]) -> GetAssetEventByAsset | GetAssetEventByAssetAlias:
        if isinstance(self._of, AssetAlias):
            return GetAssetEventByAssetAlias(alias_name=self._of.name, **conditions)
        name, uri = getattr(self._of, "name", None), getattr(self._of, "uri", None)
        return GetAssetEventByAsset(name=name, uri=uri, **conditions)

    @overload
    def __getitem__(self, place: int) -> AssetEvent: ...
    @overload
    def __getitem__(self, place: slice) -> list[AssetEvent]: ...
    def __getitem__(self, place: int | slice) -> AssetEvent | list[AssetEvent]:
        return self._events()[place]

    def __len__(self) -> int:
        return len(self._events())


class OutletEvent:
    """What a task says about the event of one outlet: more about it, its partitions, or assets that an alias means."""

    def __init__(self, outlet: AssetLike) -> None:
        self.key = outlet
        self.extra: dict[str, Any] = {}
        self.partition_keys: list[str] = []
        self.asset_alias_events: list[dict[str, Any]] = []

    def add(self, asset: Asset, extra: dict[str, Any] | None = None) -> None:
        """Emit an event of this asset through the alias."""
        if not isinstance(self.key, AssetAlias):
            raise TypeError(f"add() is for an AssetAlias; say more about {self.key!r} in its `extra`")
        if not isinstance(asset, Asset):
            raise TypeError(f"an alias emits events of assets, not of {asset!r}")
        self.asset_alias_events.append(
            {
                "source_alias_name": self.key.name,
                "dest_asset_key": {"name": asset.name, "uri": asset.uri},
                "dest_asset_extra": serde.encode(asset.extra, f"the extra of {asset.name!r}"),
                "extra": serde.encode(dict(extra or {}), f"the extra of the event of {asset.name!r}"),
            }
        )

    def add_partitions(self, keys: str | Sequence[str]) -> None:
        """Emit one event for each of these partitions instead of one for the whole."""
        if isinstance(self.key, AssetAlias):
            raise TypeError("partitions belong to an asset; an AssetAlias has none")
        for key in [keys] if isinstance(keys, str) else list(keys):
            if not is_partition_key(key):
                raise ValueError(
                    f"a partition key is a text that is not blank, of at most {LONGEST_PARTITION_KEY} characters, "
                    f"not {key!r}"
                )
            if key not in self.partition_keys:
                self.partition_keys.append(key)

    def told(self) -> Iterator[dict[str, Any]]:
        """The same in the words of the wire."""
        if not isinstance(self.key, AssetAlias) and (self.extra or self.partition_keys):
            key = {"name": getattr(self.key, "name", None), "uri": getattr(self.key, "uri", None)}
            yield {
                "dest_asset_key": key,
                "extra": serde.encode(self.extra, f"the extra of the event of {self.key!r}"),
                **({"partition_keys": self.partition_keys} if self.partition_keys else {}),
            }
        yield from self.asset_alias_events


class OutletEvents(Mapping[Any, OutletEvent]):
    """`outlet_events[asset]`: what the task says about its outlets. It counts once the task has succeeded."""

    def __init__(self, outlets: Sequence[Any]) -> None:
        self._outlets = [one for one in outlets if isinstance(one, AssetLike)]
        self._said: dict[Any, OutletEvent] = {}

    def __getitem__(self, key: Any) -> OutletEvent:
        outlet = self._outlets[key] if isinstance(key, int) else key
        if not isinstance(outlet, AssetLike):
            raise KeyError(f"outlet_events is used with an asset, an alias or a reference, not with {key!r}")
        place = outlet.reference()
        if place not in (one.reference() for one in self._outlets):
            raise KeyError(f"{outlet!r} is not among the outlets of this task; add it to outlets=")
        return self._said.setdefault(place, OutletEvent(outlet))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._outlets)

    def __len__(self) -> int:
        return len(self._outlets)

    def told(self) -> list[dict[str, Any]]:
        """Everything that was said, in the words of the wire."""
        return [event for one in self._said.values() for event in one.told()]


def check_activity(task: Any, ti_id: str) -> None:
    """Refuse to run a task whose inlets or outlets are not what they seem. Nothing is asked for if it has none."""
    if not any(isinstance(one, AssetLike) for one in (*task.inlets, *task.outlets)):
        return
    answer = comms.ask(ValidateInletsAndOutlets(ti_id))
    inactive = getattr(answer, "inactive_assets", None)
    if inactive:
        raise AirflowInactiveAssetInInletOrOutletException(inactive)


def outlet_fields(context: Mapping[str, Any]) -> dict[str, Any]:
    """What the message of a success says about outlets. Empty: the task has none."""
    outlets = [one for one in context["task"].outlets if isinstance(one, AssetLike)]
    if not outlets:
        return {}
    profiles = [profile_of(one) for one in outlets]
    return {"task_outlets": profiles, "outlet_events": context["outlet_events"].told()}


def profile_of(outlet: AssetLike) -> AssetProfile:
    """An outlet in the words of the wire."""
    match outlet:
        case Asset(name=name, uri=uri):
            return AssetProfile(name=name, uri=uri, type="Asset")
        case AssetNameRef(name=name):
            return AssetProfile(name=name, type="AssetNameRef")
        case AssetUriRef(uri=uri):
            return AssetProfile(uri=uri, type="AssetUriRef")
        case AssetAlias(name=name):
            return AssetProfile(name=name, type="AssetAlias")
        case _:
            raise TypeError(f"{outlet!r} cannot be an outlet")


def drained(result: Any, context: Mapping[str, Any]) -> Any:
    """Run a function that yields `Metadata` to its end and note what it says; what it returns is the result."""
    while True:
        try:
            said = next(result)
        except StopIteration as end:
            return end.value
        if not isinstance(said, Metadata):
            raise TypeError(f"a task yields Metadata of its outlets; to give a value on, return it. This is {said!r}")
        note(said, context["outlet_events"])


def note(said: Metadata, events: OutletEvents) -> None:
    """Remember what a `Metadata` says."""
    if said.alias is None:
        events[said.asset].extra.update(said.extra)
        return
    alias = AssetAlias(said.alias) if isinstance(said.alias, str) else said.alias
    events[alias].add(said.asset, extra=said.extra)


def _moment(value: datetime | str) -> datetime:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if moment.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone; give a moment that has one")
    return moment
