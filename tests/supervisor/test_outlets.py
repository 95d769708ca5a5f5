"""What the end of a task says about its outlets, whichever language said it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from stannel.model.asset import AssetAt, AssetNamed, Emitted, ThisAsset
from stannel.protocol.data import AssetProfile
from stannel.protocol.requests import SucceedTask
from stannel.supervisor.outlets import emitted_by

A = ThisAsset("a", "s3://a")
ASSET = AssetProfile(name="a", uri="s3://a", type="Asset")
KEY = {"name": "a", "uri": "s3://a"}


def emitted(outlets: list[AssetProfile] | None, *events: dict[str, Any]) -> tuple[Emitted, ...]:
    return emitted_by(
        SucceedTask(end_date=datetime(2026, 1, 1, tzinfo=UTC), task_outlets=outlets, outlet_events=list(events))
    )


def alias(name: str, **fields: Any) -> dict[str, Any]:
    return {"source_alias_name": name, "dest_asset_key": KEY, "dest_asset_extra": {}, "extra": {}, **fields}


@pytest.mark.parametrize("outlets", [None, []])
def test_a_task_without_outlets_emits_nothing(outlets: list[AssetProfile] | None) -> None:
    assert emitted(outlets, {"dest_asset_key": KEY, "extra": {"n": 1}}) == ()


def test_an_outlet_is_updated_whatever_was_said_of_it() -> None:
    assert emitted([ASSET]) == (Emitted(of=A),)
    assert emitted([ASSET], {"dest_asset_key": KEY, "extra": {"n": 1}}) == (Emitted(of=A, extra={"n": 1}),)
    assert emitted([ASSET], {"dest_asset_key": {"name": "b", "uri": "b"}, "extra": {"n": 1}}) == (Emitted(of=A),)


def test_references_are_updated_by_what_they_name() -> None:
    by_name, by_uri = AssetProfile(name="a", type="AssetNameRef"), AssetProfile(uri="s3://a", type="AssetUriRef")
    assert emitted([by_name, by_uri], {"dest_asset_key": {"name": "a", "uri": None}, "extra": {"n": 1}}) == (
        Emitted(of=AssetNamed("a"), extra={"n": 1}),
        Emitted(of=AssetAt("s3://a")),
    )


def test_each_partition_has_an_event_of_its_own() -> None:
    told = {"dest_asset_key": KEY, "extra": {"n": 1}, "partition_keys": ["eu", "us", ""]}
    assert [one.partition_key for one in emitted([ASSET], told)] == ["eu", "us"]


def test_equal_events_through_several_aliases_are_one() -> None:
    outlets = [AssetProfile(name="x", type="AssetAlias"), AssetProfile(name="y", type="AssetAlias")]
    found = emitted(outlets, alias("x"), alias("y"), alias("x"), alias("x", extra={"n": 1}), alias("unknown"))
    assert found == (Emitted(of=A, aliases=("x", "y")), Emitted(of=A, aliases=("x",), extra={"n": 1}))


@pytest.mark.parametrize(
    "odd", [{}, {"dest_asset_key": 3}, {"dest_asset_key": KEY, "extra": None}, {"source_alias_name": "x"}]
)
def test_what_other_languages_leave_out_does_no_harm(odd: dict[str, Any]) -> None:
    assert emitted([ASSET, AssetProfile(name="x", type="AssetAlias")], odd) == (Emitted(of=A),)
