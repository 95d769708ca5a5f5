"""What a running task may ask about assets is answered from the store."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from scheduler.conftest import Stage, task

from stannel.execution.answers import answer
from stannel.execution.greeting import greeting
from stannel.model.asset import AnyOfAlias, AssetNamed, AssetSpec, EventSource, NewEvent, ThisAsset
from stannel.model.run import Attempt
from stannel.model.schedule import OnAssets
from stannel.protocol import requests
from stannel.protocol.data import AssetProfile
from stannel.protocol.refusal import Refused
from stannel.protocol.schema import ErrorCode

ORDERS = ThisAsset("orders", "s3://orders")
ASSETS = (AssetSpec(name="orders", uri="s3://orders", group="shop", extra={"k": 1}),)
Ask = Callable[[requests.Request], Any]


def tell(stage: Stage, number: int, **fields: Any) -> None:
    event = NewEvent(of=ORDERS, source=EventSource.WATCHER, extra={"n": number}, **fields)
    stage.store.events.register([event], now=stage.now)


@pytest.fixture
def attempt(stage: Stage) -> Attempt:
    """A running task of a DAG that an event has started."""
    outlets = (ORDERS, AssetNamed("nobody"), AnyOfAlias("files"))
    stage.dag(task("t", outlets=outlets), schedule=OnAssets(ORDERS), assets=ASSETS, max_active_runs=1)
    tell(stage, 0, aliases=("files",))
    stage.tick()
    [attempt] = stage.claim_all()
    return attempt


@pytest.fixture
def ask(stage: Stage, attempt: Attempt) -> Ask:
    return lambda request: answer(stage.store, attempt, request, xcom_limit=1000)


def test_an_asset_is_found_by_name_and_by_uri(ask: Ask) -> None:
    by_name, by_uri = ask(requests.GetAssetByName("orders")), ask(requests.GetAssetByUri("s3://orders"))
    assert by_name == by_uri
    assert (by_name.name, by_name.uri, by_name.group, by_name.extra) == ("orders", "s3://orders", "shop", {"k": 1})


@pytest.mark.parametrize(
    ("request_", "detail"),
    [(requests.GetAssetByName("no"), {"name": "no"}), (requests.GetAssetByUri("no"), {"uri": "no"})],
)
def test_an_unknown_asset_is_refused_in_the_body(ask: Ask, request_: requests.Request, detail: dict[str, str]) -> None:
    with pytest.raises(Refused) as refusal:
        ask(request_)
    assert (refusal.value.code, refusal.value.detail) == (ErrorCode.ASSET_NOT_FOUND, detail)
    assert refusal.value.in_body


def test_the_assets_of_an_alias_are_those_emitted_through_it(ask: Ask) -> None:
    assert [one.name for one in ask(requests.GetAssetsByAlias("files")).assets] == ["orders"]
    assert ask(requests.GetAssetsByAlias("none")).assets == []


def test_events_are_filtered_and_tell_the_runs_they_made(stage: Stage, ask: Ask) -> None:
    for number in range(1, 4):
        stage.now += timedelta(seconds=1)
        tell(stage, number, partition_key="eu" if number < 3 else None)

    def numbers(**fields: Any) -> list[int]:
        question = requests.GetAssetEventByAsset(name="orders", uri=None, **fields)
        return [one.extra["n"] for one in ask(question).asset_events]

    assert numbers() == [0, 1, 2, 3]
    assert numbers(ascending=False, limit=2) == [3, 2]
    assert numbers(partition_key="eu", extra={"n": "2"}) == [2]
    assert numbers(extra={"n": "2"}, limit=1, after=stage.now - timedelta(seconds=1)) == [2]
    [first] = ask(requests.GetAssetEventByAssetAlias(alias_name="files")).asset_events
    assert (first.asset.group, [run.dag_id for run in first.created_dagruns]) == ("shop", ["d"])


@pytest.mark.parametrize("fields", [{"partition_key_regexp_pattern": ".*"}, {"name": None}])
def test_a_question_that_cannot_be_answered_is_refused(ask: Ask, fields: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        ask(requests.GetAssetEventByAsset(**{"name": "orders", "uri": None, **fields}))


def test_inlets_and_outlets_that_are_not_active_are_named(ask: Ask) -> None:
    found = ask(requests.ValidateInletsAndOutlets("x")).inactive_assets
    assert found == [AssetProfile(name="nobody", type="AssetNameRef")]


def test_the_greeting_and_the_run_tell_which_events_were_consumed(attempt: Attempt, ask: Ask) -> None:
    told = greeting(attempt, hostname="here").ti_context.dag_run
    asked = ask(requests.GetDagRun("d", attempt.run_id))
    [event] = told.consumed_asset_events
    assert asked.consumed_asset_events == told.consumed_asset_events
    assert (event.asset.name, event.extra, event.asset.extra) == ("orders", {"n": 0}, {"k": 1})
    assert [one.name for one in event.source_aliases] == ["files"]
