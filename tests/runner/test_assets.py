"""Assets in a running task: what it learns of events, and what it says of its outlets."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from support.memory_channel import MOMENT, MemoryChannel, run, startup

from stannel.protocol.data import (
    AssetAliasReferenceAssetEventDagRun,
    AssetEventDagRunReference,
    AssetEventResponse,
    AssetProfile,
    AssetReferenceAssetEventDagRun,
    AssetResponse,
)
from stannel.protocol.replies import AssetEventsResult, AssetResult, InactiveAssetsResult
from stannel.protocol.requests import (
    GetAssetByName,
    GetAssetEventByAsset,
    GetAssetEventByAssetAlias,
    SucceedTask,
    TaskState,
    ValidateInletsAndOutlets,
)
from stannel.runner.assets import PastEvents, TriggeringAssetEvents
from stannel.runner.execute import execute
from stannel.sdk import DAG, Asset, AssetAlias, Metadata, asset, comms, serde, task

ORDERS, FILES = Asset("orders", uri="s3://orders"), AssetAlias("files")


@pytest.fixture
def channel() -> MemoryChannel:
    return MemoryChannel()


def consumed(name: str, number: int, *, alias: str | None = None) -> AssetEventDagRunReference:
    return AssetEventDagRunReference(
        asset=AssetReferenceAssetEventDagRun(name=name, uri=f"s3://{name}", extra={}),
        extra=serde.encode({"number": number, "since": timedelta(days=1)}),
        source_task_id="t",
        source_dag_id="d",
        source_run_id="r",
        source_map_index=-1,
        source_aliases=[AssetAliasReferenceAssetEventDagRun(name=alias)] if alias else [],
        timestamp=MOMENT,
    )


def past(number: int, key: str | None = None) -> AssetEventResponse:
    return AssetEventResponse(
        id=number,
        timestamp=MOMENT,
        extra={"number": number},
        asset=AssetResponse(name="orders", uri="s3://orders", group="asset"),
        created_dagruns=[],
        partition_key=key,
    )


# --- what started the run --------------------------------------------------------------------------------------------


def test_the_events_of_a_run_are_found_by_asset_reference_and_alias() -> None:
    events = TriggeringAssetEvents([consumed("orders", 1), consumed("orders", 2), consumed("found", 3, alias="files")])
    for key in (ORDERS, Asset("orders", uri="s3://orders", extra={"x": 1}), Asset.ref(name="orders")):
        assert [one.extra["number"] for one in events[key]] == [1, 2]
    assert [one.asset.name for one in events[FILES]] == ["found"]
    assert [one.extra["number"] for one in events[Asset.ref(uri="s3://found")]] == [3]
    assert {one.uri: len(found) for one, found in events.items()} == {"s3://orders": 2, "s3://found": 1}
    assert events[ORDERS][0].extra["since"] == timedelta(days=1)
    with pytest.raises(KeyError):
        events[Asset("other")]
    with pytest.raises(KeyError):
        events["orders"]


def test_a_task_is_given_the_events_that_started_its_run(channel: MemoryChannel) -> None:
    with DAG("d", schedule=ORDERS) as dag:

        @task
        def read(triggering_asset_events: Any, partition_key: Any) -> Any:
            return [partition_key, [one.extra["number"] for one in triggering_asset_events[ORDERS]]]

        read()
    told = startup("d", "read")
    events = [consumed("orders", 1), consumed("orders", 2)]
    about = msgspec.structs.replace(told.ti_context.dag_run, consumed_asset_events=events, partition_key="eu")
    told = msgspec.structs.replace(told, ti_context=msgspec.structs.replace(told.ti_context, dag_run=about))
    assert isinstance(execute(told, {"d": dag}, channel), SucceedTask)
    assert channel.returned("read") == ["eu", [1, 2]]


# --- what it says of its outlets -------------------------------------------------------------------------------------


def finished(channel: MemoryChannel, function: Any, **settings: Any) -> Any:
    """How a task of this function ended."""
    with DAG("d", schedule=None) as dag:
        task(task_id="t", **settings)(function)()
    return run(dag, "t", channel)


def test_a_task_without_outlets_says_nothing_and_asks_nothing(channel: MemoryChannel) -> None:
    ended = finished(channel, lambda: None)
    assert (ended.task_outlets, ended.outlet_events) == (None, None)
    assert channel.sent(ValidateInletsAndOutlets) == []


def test_outlets_travel_with_what_was_said_about_them(channel: MemoryChannel) -> None:
    def work(outlet_events: Any) -> None:
        outlet_events[ORDERS].extra = {"rows": 3, "at": datetime(2026, 1, 1, tzinfo=UTC)}
        outlet_events[ORDERS].add_partitions(["eu", "us", "eu"])
        outlet_events[FILES].add(Asset("found", extra={"k": 1}), extra={"size": 2})

    ended = finished(channel, work, outlets=[ORDERS, FILES, Asset.ref(name="n")])
    assert ended.task_outlets == [
        AssetProfile(name="orders", uri="s3://orders", type="Asset"),
        AssetProfile(name="files", type="AssetAlias"),
        AssetProfile(name="n", type="AssetNameRef"),
    ]
    orders, found = ended.outlet_events
    assert orders["dest_asset_key"] == {"name": "orders", "uri": "s3://orders"}
    assert serde.decode(orders["extra"]) == {"rows": 3, "at": datetime(2026, 1, 1, tzinfo=UTC)}
    assert orders["partition_keys"] == ["eu", "us"]
    assert found == {
        "source_alias_name": "files",
        "dest_asset_key": {"name": "found", "uri": "found"},
        "dest_asset_extra": {"k": 1},
        "extra": {"size": 2},
    }


def test_metadata_that_is_yielded_counts_and_the_returned_value_is_the_result(channel: MemoryChannel) -> None:
    def work() -> Any:
        yield Metadata(ORDERS, {"rows": 3})
        yield Metadata(ORDERS, {"more": 4})
        yield Metadata(Asset("found"), {"size": 1}, alias=FILES)
        return "done"

    ended = finished(channel, work, outlets=[ORDERS, FILES])
    assert [one["extra"] for one in ended.outlet_events] == [{"rows": 3, "more": 4}, {"size": 1}]
    assert channel.returned("t") == "done"


def test_a_task_cannot_yield_anything_but_metadata(channel: MemoryChannel) -> None:
    def work() -> Any:
        yield 3

    assert isinstance(finished(channel, work, outlets=[ORDERS]), TaskState)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda events: events[Asset("other")],
        lambda events: events["orders"],
        lambda events: events[ORDERS].add(Asset("x")),
        lambda events: events[FILES].add_partitions("eu"),
        lambda events: events[ORDERS].add_partitions([" "]),
        lambda events: events[ORDERS].extra.update(bad=object()),
    ],
)
def test_what_cannot_be_said_of_an_outlet_fails_the_task(channel: MemoryChannel, wrong: Any) -> None:
    ended = finished(channel, lambda outlet_events: [wrong(outlet_events), None][1], outlets=[ORDERS, FILES])
    assert isinstance(ended, TaskState)


def test_a_task_whose_outlet_is_not_active_does_not_run(channel: MemoryChannel) -> None:
    inactive = [AssetProfile(name="orders", uri="s3://orders", type="Asset")]
    channel.prepared[ValidateInletsAndOutlets] = [InactiveAssetsResult(inactive)]
    ran = []
    ended = finished(channel, lambda: ran.append(1), outlets=[ORDERS])
    assert (ended.state, ran) == ("failed", [])


# --- what its inlets had before --------------------------------------------------------------------------------------


def test_past_events_are_asked_for_once_and_only_when_read(channel: MemoryChannel) -> None:
    channel.prepared[GetAssetEventByAsset] = [AssetEventsResult([past(1), past(2)])]
    with comms.use_channel(channel):
        found = PastEvents(ORDERS).after(MOMENT).limit(5).ascending(False).extra("n", 1).partition_key("eu")
        assert channel.asked == []
        assert [one.extra["number"] for one in found] == [1, 2]
        assert (len(found), found[-1].extra["number"], found[-1].source_dag_run) == (2, 2, None)
    [question] = channel.sent(GetAssetEventByAsset)
    assert question == GetAssetEventByAsset(
        name="orders", uri="s3://orders", after=MOMENT, limit=5, ascending=False, extra={"n": "1"}, partition_key="eu"
    )


def test_a_pattern_is_matched_where_it_was_written(channel: MemoryChannel) -> None:
    events = AssetEventsResult([past(1, "eu-1"), past(2), past(3, "us-1"), past(4, "eu-2"), past(5, "eu-3")])
    channel.prepared[GetAssetEventByAssetAlias] = [events]
    with comms.use_channel(channel):
        found = PastEvents(FILES).partition_key_regexp_pattern("^eu-").limit(2)
        assert [one.extra["number"] for one in found] == [1, 4]
    [question] = channel.sent(GetAssetEventByAssetAlias)
    assert (question.alias_name, question.limit, question.partition_key_regexp_pattern) == ("files", None, None)


def test_inlets_are_read_by_asset_or_by_their_place(channel: MemoryChannel) -> None:
    channel.prepared[GetAssetEventByAsset] = [AssetEventsResult([past(1)])]

    def work(inlet_events: Any, inlets: Any) -> Any:
        assert list(inlet_events) == inlets
        return [inlet_events[0][0].extra["number"], inlet_events[ORDERS][0].extra["number"]]

    assert isinstance(finished(channel, work, inlets=[ORDERS]), SucceedTask)
    assert channel.returned("t") == [1, 1]


def report(self: Any, orders: Any, context: Any, outlet_events: Any, size: int = 3) -> Any:
    outlet_events[self].extra["n"] = size
    return [self.name, orders.uri, context["ti"].task_id]


def test_an_asset_function_is_given_the_assets_that_it_names(
    channel: MemoryChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[DAG] = []
    monkeypatch.setattr("stannel.sdk.building.register_dag", made.append)
    asset(schedule=None)(report)
    channel.prepared[GetAssetByName] = [AssetResult(name="orders", uri="s3://orders", group="asset")]
    ended = run(made[0], "report", channel)
    assert channel.returned("report") == ["report", "s3://orders", "report"]
    assert [one["extra"] for one in ended.outlet_events] == [{"n": 3}]
