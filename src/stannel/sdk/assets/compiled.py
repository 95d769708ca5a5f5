"""From an author's assets to data: what a DAG refers to, and the watchers that come along."""

from collections.abc import Iterable, Iterator
from typing import Any

from stannel.model.asset import AliasSpec, AssetSpec, Reference, WatcherSpec, merged_assets
from stannel.sdk import serde
from stannel.sdk.assets.definition import Asset, AssetAlias, AssetLike, AssetWatcher
from stannel.sdk.assets.schedule import AssetSchedule
from stannel.sdk.dags import DAG
from stannel.sdk.deferral import encoded, serialized
from stannel.triggers.stream_keys import key_in_words, key_of


def references_of(things: Iterable[Any]) -> tuple[Reference, ...]:
    """The assets among the inlets or outlets of a task; other things there are the author's own business."""
    return tuple(dict.fromkeys(one.reference() for one in things if isinstance(one, AssetLike)))


def assets_of(dag: DAG) -> tuple[AssetSpec, ...]:
    """Every asset the DAG defines, once, with the watchers of all its mentions."""
    return merged_assets(_asset_spec(one) for one in _parts(dag) if isinstance(one, Asset))


def aliases_of(dag: DAG) -> tuple[AliasSpec, ...]:
    found = {one.name: AliasSpec(one.name, one.group) for one in _parts(dag) if isinstance(one, AssetAlias)}
    return tuple(found[name] for name in sorted(found))


def _parts(dag: DAG) -> Iterator[Any]:
    for task in dag.tasks:
        yield from (*task.inlets, *task.outlets)
    # Last, because what is said last about an asset counts, and its schedule is what a DAG is about.
    if isinstance(dag.timetable, AssetSchedule):
        yield from dag.timetable.parts()


def _asset_spec(asset: Asset) -> AssetSpec:
    return AssetSpec(
        name=asset.name,
        uri=asset.uri,
        group=asset.group,
        extra=serde.encode(asset.extra, f"the extra of the asset {asset.name!r}"),
        watchers=tuple(_watcher_spec(asset, one) for one in asset.watchers),
    )


def _watcher_spec(asset: Asset, watcher: AssetWatcher) -> WatcherSpec:
    classpath, arguments = serialized(watcher.trigger)
    what = f"the watcher {watcher.name!r} of the asset {asset.name!r}"
    key = key_of(watcher.trigger)
    return WatcherSpec(
        name=watcher.name,
        classpath=classpath,
        kwargs=encoded(arguments, what),
        queue=watcher.trigger.queue,
        stream_key=None if key is None else key_in_words(key),
    )
