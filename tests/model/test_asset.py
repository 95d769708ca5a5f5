"""Conditions over assets: when they are met, what is missing, how they read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stannel.model.asset import (
    AllOf,
    AnyOf,
    AnyOfAlias,
    AssetAt,
    AssetNamed,
    AssetSpec,
    Condition,
    ThisAsset,
    Update,
    WatcherSpec,
    in_words,
    is_met,
    is_partition_key,
    merged_assets,
    missing,
    without_secrets,
)

A, B = ThisAsset("a", "s3://a"), ThisAsset("b", "s3://b")
ON_A, ON_B = Update("a", "s3://a"), Update("b", "s3://b", frozenset({"files"}))


@pytest.mark.parametrize(
    ("condition", "updates", "expected"),
    [
        (A, [], False),
        (A, [ON_A], True),
        (A, [ON_B], False),
        (ThisAsset("a", "s3://elsewhere"), [ON_A], False),
        (AssetNamed("a"), [ON_A], True),
        (AssetAt("s3://b"), [ON_B], True),
        (AnyOfAlias("files"), [ON_A], False),
        (AnyOfAlias("files"), [ON_B], True),
        (AllOf((A, B)), [ON_A], False),
        (AllOf((A, B)), [ON_A, ON_B], True),
        (AnyOf((A, B)), [ON_B], True),
        (AnyOf((A, B)), [], False),
        (AllOf((A, AnyOf((B, AnyOfAlias("none"))))), [ON_A, ON_B], True),
        (AllOf(()), [ON_A], False),
        (AnyOf(()), [ON_A], False),
    ],
)
def test_when_a_condition_is_met(condition: Condition, updates: list[Update], expected: bool) -> None:
    assert is_met(condition, updates) is expected
    assert (missing(condition, updates) == []) >= expected


def test_what_is_missing_is_named() -> None:
    assert missing(AllOf((A, B)), [ON_A]) == [B]
    assert missing(AnyOf((A, B)), [ON_A]) == []


def test_a_condition_reads_as_its_author_wrote_it() -> None:
    assert in_words(AllOf((A, AnyOf((B, AnyOfAlias("files"), AssetAt("s3://c")))))) == "a & (b | alias files | s3://c)"


_leaves = st.sampled_from([A, B, AssetNamed("b"), AnyOfAlias("files")])
_conditions: st.SearchStrategy[Condition] = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, min_size=1, max_size=3).flatmap(
        lambda parts: st.sampled_from([AllOf(tuple(parts)), AnyOf(tuple(parts))])
    ),
)


@given(_conditions, st.sets(st.sampled_from([ON_A, ON_B])), st.sets(st.sampled_from([ON_A, ON_B])))
def test_more_events_never_make_a_condition_false(condition: Condition, some: set[Update], more: set[Update]) -> None:
    assert is_met(condition, some | more) >= is_met(condition, some)


def test_one_asset_mentioned_twice_has_the_watchers_of_both_mentions() -> None:
    one, two = WatcherSpec(name="one", classpath="x.Y"), WatcherSpec(name="two", classpath="x.Y", kwargs={"p": "s"})
    specs = [
        AssetSpec(name="a", uri="a", watchers=(one, two), extra={"n": 1}),
        AssetSpec(name="a", uri="a", watchers=(two,), extra={"n": 2}),
    ]
    [merged] = merged_assets(specs)
    assert (merged.watchers, merged.extra) == ((one, two), {"n": 2})
    [shown] = without_secrets([merged])
    assert [watcher.kwargs for watcher in shown.watchers] == [{}, {}]


@pytest.mark.parametrize(("key", "fits"), [("eu", True), ("", False), (" ", False), ("x" * 251, False), (3, False)])
def test_what_may_be_a_partition_key(key: object, fits: bool) -> None:
    assert is_partition_key(key) is fits
