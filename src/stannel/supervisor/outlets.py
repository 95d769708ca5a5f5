"""What a task that succeeded says about its outlets, from the free form of the wire to plain data.

Each map of `outlet_events` may have `dest_asset_key` (name and uri), `extra`, `partition_keys`, and for an event that
was emitted through an alias also `source_alias_name` and `dest_asset_extra`. What else is in it is ignored.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stannel.model.asset import AssetAt, AssetNamed, Emitted, ThisAsset, as_map, is_partition_key
from stannel.protocol.data import AssetProfile
from stannel.protocol.requests import SucceedTask


def emitted_by(message: SucceedTask) -> tuple[Emitted, ...]:
    """One event for each outlet, or one for each of its partitions; through aliases, one for each different event."""
    if not message.task_outlets:
        return ()
    told = message.outlet_events or []
    aliases = {profile.name for profile in message.task_outlets if profile.type == "AssetAlias"}
    direct = [event for profile in message.task_outlets for event in _direct(profile, told)]
    return (*direct, *_through_aliases(aliases, told))


def _direct(profile: AssetProfile, told: Sequence[Mapping[str, Any]]) -> Iterator[Emitted]:
    of = _named(profile)
    if of is None:
        return
    about = next((one for one in told if not one.get("source_alias_name") and _is_about(of, one)), {})
    extra = dict(as_map(about.get("extra")))
    keys = [key for key in about.get("partition_keys") or () if is_partition_key(key)]
    for key in keys or [None]:
        yield Emitted(of=of, extra=extra, partition_key=key)


def _named(profile: AssetProfile) -> ThisAsset | AssetNamed | AssetAt | None:
    match profile:
        case AssetProfile(type="Asset", name=str(name), uri=str(uri)):
            return ThisAsset(name, uri)
        case AssetProfile(type="AssetNameRef", name=str(name)):
            return AssetNamed(name)
        case AssetProfile(type="AssetUriRef", uri=str(uri)):
            return AssetAt(uri)
        case _:
            return None


def _is_about(of: ThisAsset | AssetNamed | AssetAt, one: Mapping[str, Any]) -> bool:
    key = as_map(one.get("dest_asset_key"))
    match of:
        case ThisAsset(name, uri):
            return (key.get("name"), key.get("uri")) == (name, uri)
        case AssetNamed(name):
            return key.get("name") == name
        case AssetAt(uri):
            return key.get("uri") == uri


def _through_aliases(aliases: set[str | None], told: Sequence[Mapping[str, Any]]) -> list[Emitted]:
    """Equal events through several aliases are one event that knows all of them."""
    found: dict[bytes, Emitted] = {}
    for one in told:
        alias, key = one.get("source_alias_name"), as_map(one.get("dest_asset_key"))
        if alias not in aliases or not isinstance(key.get("name"), str) or not isinstance(key.get("uri"), str):
            continue
        event = Emitted(
            of=ThisAsset(key["name"], key["uri"]),
            extra=dict(as_map(one.get("extra"))),
            asset_extra=dict(as_map(one.get("dest_asset_extra"))),
        )
        place = msgspec.json.encode(event, order="sorted")
        known = found.get(place, event)
        if alias not in known.aliases:
            found[place] = msgspec.structs.replace(known, aliases=(*known.aliases, str(alias)))
    return list(found.values())
