"""Assets follow the DAG files: known while named, active while needed, never two of a name."""

from typing import Any

import pytest
from store.world import World, task

from stannel.errors import UnknownId
from stannel.model.asset import AliasSpec, AllOf, AnyOfAlias, AssetAt, AssetNamed, AssetSpec, Condition, ThisAsset
from stannel.model.dag import DagSpec
from stannel.model.schedule import Never, OnAssets

ORDERS = ThisAsset("orders", "s3://orders")


def spec(dag_id: str, *, on: Condition | None = None, outlets: tuple[Any, ...] = (), **fields: Any) -> DagSpec:
    named = [*([on] if isinstance(on, ThisAsset) else []), *(one for one in outlets if isinstance(one, ThisAsset))]
    fields.setdefault("assets", tuple(AssetSpec(name=one.name, uri=one.uri) for one in named))
    schedule = Never() if on is None else OnAssets(on)
    return DagSpec(
        dag_id=dag_id, fileloc=f"{dag_id}.py", schedule=schedule, tasks=(task("t", outlets=outlets),), **fields
    )


def save(world: World, one: DagSpec) -> None:
    world.save(one, path=one.fileloc)


def active(world: World) -> list[str]:
    return [f"{one.name} {one.uri}" for one in world.store.assets.all()]


def test_an_asset_is_active_while_some_dag_names_it(world: World) -> None:
    save(world, spec("producer", outlets=(ORDERS,)))
    save(world, spec("consumer", on=ORDERS))
    assert active(world) == ["orders s3://orders"]
    world.store.dags.remove_file("producer.py")
    assert active(world) == ["orders s3://orders"]
    save(world, spec("consumer"))
    assert active(world) == []
    assert [one.name for one in world.store.assets.all(inactive=True)] == ["orders"]
    save(world, spec("producer", outlets=(ORDERS,)))
    assert active(world) == ["orders s3://orders"]


def test_where_an_asset_is_named_is_known(world: World) -> None:
    save(world, spec("producer", outlets=(ORDERS,)))
    save(world, spec("by-name", on=AllOf((AssetNamed("orders"),))))
    save(world, spec("by-uri", on=AssetAt("s3://orders")))
    found = world.store.assets.references(world.store.assets.get("orders"))
    assert [(one.dag_id, one.role, one.task_id, one.kind) for one in found] == [
        ("by-name", "schedule", "", "name"),
        ("by-uri", "schedule", "", "uri"),
        ("producer", "outlet", "t", "asset"),
    ]


def test_of_two_assets_with_one_name_the_first_stays_and_the_other_dag_is_warned(world: World) -> None:
    other = ThisAsset("orders", "gs://orders")
    save(world, spec("first", on=ORDERS))
    save(world, spec("second", on=other))
    assert active(world) == ["orders s3://orders"]
    [warning] = world.store.assets.warnings()
    assert (warning.dag_id, warning.kind) == ("second", "asset_conflict")
    assert "gs://orders" in warning.message
    assert world.store.assets.inactive_among([ORDERS, other, AssetNamed("orders")]) == [other]
    # Parsed again in the other order, it is still the same one.
    save(world, spec("second", on=other, description="new"))
    assert active(world) == ["orders s3://orders"]
    world.store.dags.remove_file("first.py")
    assert active(world) == ["orders gs://orders"]
    assert world.store.assets.warnings() == []


def test_what_was_said_last_about_an_asset_counts(world: World) -> None:
    for number in (1, 2):
        said = AssetSpec(name="orders", uri="s3://orders", group=f"g{number}", extra={"number": number})
        save(world, spec(f"d{number}", on=ORDERS, assets=(said,)))
    found = world.store.assets.get("orders")
    assert (found.group, found.extra) == ("g2", {"number": 2})


def test_an_unknown_asset_is_refused_with_what_was_meant(world: World) -> None:
    save(world, spec("d", on=ORDERS))
    with pytest.raises(UnknownId, match="did you mean orders"):
        world.store.assets.get("order")
    assert world.store.assets.get("s3://orders").name == "orders"


def test_an_alias_alone_makes_no_asset(world: World) -> None:
    save(world, spec("d", on=AnyOfAlias("files"), aliases=(AliasSpec("files"),)))
    assert world.store.assets.all(inactive=True) == []
    assert world.store.assets.of_alias("files") == []
    assert world.store.assets.inactive_among([AnyOfAlias("files")]) == []
