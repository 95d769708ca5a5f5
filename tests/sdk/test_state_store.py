"""State stores as task code meets them: what they keep, what they refuse, and what is asked of the engine."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
from support.memory_channel import MemoryChannel, startup

from stannel.model.state_store import REFERENCE, AssetScope, BaseStoreBackend, TaskScope
from stannel.protocol.replies import AssetResult, AssetsByAliasResult, ErrorResponse
from stannel.protocol.requests import GetAssetsByAlias, GetTaskStateStore, SetTaskStateStore
from stannel.protocol.schema import ErrorCode
from stannel.runner.context import context_for
from stannel.runner.task_instance import RuntimeTaskInstance
from stannel.sdk import DAG, NEVER_EXPIRE, Asset, AssetAlias, state_store
from stannel.sdk.comms import use_channel
from stannel.sdk.context import Context
from stannel.sdk.exceptions import AirflowRuntimeError
from stannel.sdk.operators import PythonOperator
from stannel.sdk.state_store import TaskStateStore

SCOPE = TaskScope("d", "r", "t")


@pytest.fixture
def channel() -> Iterator[MemoryChannel]:
    channel = MemoryChannel()
    with use_channel(channel):
        yield channel


@pytest.fixture
def store(channel: MemoryChannel) -> TaskStateStore:
    return TaskStateStore("ti", SCOPE)


def context_of(inlets: Any = (), outlets: Any = ()) -> Context:
    with DAG("d", schedule=None) as dag:
        PythonOperator(task_id="t", python_callable=print, inlets=list(inlets), outlets=list(outlets))
    greeting, task = startup("d", "t"), dag.task_dict["t"]
    return context_for(greeting, task, RuntimeTaskInstance(greeting, task))


# --- one key ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, "", False, [], {}, 1.5, "text", {"a": [1, {"b": None}]}, 2**63])
def test_what_was_kept_comes_back_as_it_was(store: TaskStateStore, value: Any) -> None:
    store.set("k", value)
    assert store.get("k") == value
    assert type(store.get("k")) is type(value)


def test_a_missing_key_gives_the_default_and_is_deleted_in_silence(store: TaskStateStore) -> None:
    assert store.get("k") is None
    assert store.get("k", default=7) == 7
    store.delete("k")
    store.clear()


def test_a_second_set_overwrites_and_delete_and_clear_forget(store: TaskStateStore) -> None:
    store.set("a/b/c", 1)
    store.set("a/b/c", 2)
    store.set("d", 3)
    assert store.get("a/b/c") == 2
    store.delete("a/b/c")
    assert (store.get("a/b/c"), store.get("d")) == (None, 3)
    store.clear()
    assert store.get("d") is None


def test_any_other_trouble_than_a_missing_key_is_an_error(store: TaskStateStore, channel: MemoryChannel) -> None:
    channel.prepared[GetTaskStateStore] = [ErrorResponse(ErrorCode.API_SERVER_ERROR, {"message": "no disk"})]
    with pytest.raises(AirflowRuntimeError, match="no disk"):
        store.get("k", default=1)


def test_async_code_has_the_same_methods(store: TaskStateStore) -> None:
    async def use() -> list[Any]:
        await store.aset("a", 1, retention=timedelta(days=1))
        found = [await store.aget("a"), await store.acompare_and_set("a", 1, 2), await store.aget("b", 7)]
        await store.aupdate({"c": 3}, remove=["a"])
        found += [await store.aget("a"), await store.aget("c")]
        await store.adelete("c")
        await store.aclear()
        return [*found, await store.aget("c")]

    assert asyncio.run(use()) == [1, True, 7, None, 3, None]


# --- several keys -----------------------------------------------------------------------------------------------------


def test_several_keys_change_together_or_not_at_all(store: TaskStateStore, channel: MemoryChannel) -> None:
    store.set("a", 1)
    assert store.update({"b": 2, "c": 3}, remove=["a"], expect={"a": 1, "b": None})
    assert channel.task_state == {"b": 2, "c": 3}
    assert not store.update({"b": 9}, remove=["c"], expect={"c": 4})
    assert channel.task_state == {"b": 2, "c": 3}
    with pytest.raises(ValueError, match="both set and removed"):
        store.update({"b": 9}, remove=["b"])


# --- retention --------------------------------------------------------------------------------------------------------


def expires_at(channel: MemoryChannel) -> datetime | None:
    moment: datetime | None = channel.sent(SetTaskStateStore)[-1].expires_at
    return moment


def test_a_key_expires_when_its_author_or_the_settings_say(
    store: TaskStateStore, channel: MemoryChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = datetime.now(UTC)
    store.set("k", 1, retention=timedelta(hours=1))
    moment = expires_at(channel)
    assert moment is not None
    assert before <= moment - timedelta(hours=1) <= datetime.now(UTC)
    store.set("k", 1)
    moment = expires_at(channel)
    assert moment is not None
    assert before <= moment - timedelta(days=30) <= datetime.now(UTC)
    store.set("k", 1, retention=NEVER_EXPIRE)
    assert expires_at(channel) is None
    monkeypatch.setenv("STANNEL__STATE_STORE__DEFAULT_RETENTION_DAYS", "0")
    store.set("k", 1)
    assert expires_at(channel) is None


@pytest.mark.parametrize(
    ("retention", "error"),
    [
        (30, TypeError),
        ("1d", TypeError),
        (True, TypeError),
        (timedelta(0), ValueError),
        (timedelta(days=-1), ValueError),
        (timedelta.max - timedelta(days=1), ValueError),
    ],
)
def test_a_retention_that_is_none_is_refused(
    store: TaskStateStore, channel: MemoryChannel, retention: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="retention"):
        store.set("k", 1, retention=retention)
    assert channel.asked == []


# --- bad input --------------------------------------------------------------------------------------------------------

BAD_VALUES: dict[str, Any] = {
    "None": None,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "NaN inside": {"a": [1.0, float("nan")]},
    "a moment": datetime(2026, 11, 15, tzinfo=UTC),
    "a moment inside": [datetime(2026, 11, 15, tzinfo=UTC)],
    "bytes": b"x",
    "a tuple": (1, 2),
    "a set": {1},
    "an object": object(),
    "a key that is no text": {1: "a"},
    "an integer beyond 64 bits": 2**64,
    "half a character": "\ud800",
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_a_value_that_would_not_come_back_is_refused_and_nothing_is_asked(
    store: TaskStateStore, channel: MemoryChannel, name: str
) -> None:
    for write in (lambda: store.set("k", BAD_VALUES[name]), lambda: store.update({"good": 1, "k": BAD_VALUES[name]})):
        with pytest.raises(ValueError, match="'k' cannot be set"):
            write()
    assert channel.asked == []


def test_a_value_larger_than_allowed_is_refused(
    store: TaskStateStore, channel: MemoryChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANNEL__STATE_STORE__MAX_VALUE_STORAGE_BYTES", "10")
    store.set("k", "12345678")
    with pytest.raises(ValueError, match=r"11 bytes, more than 10.*max_value_storage_bytes"):
        store.set("k", "123456789")
    assert channel.task_state == {"k": "12345678"}
    monkeypatch.setenv("STANNEL__STATE_STORE__MAX_VALUE_STORAGE_BYTES", "0")
    store.set("k", "x" * 100_000)


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("", ValueError),
        ("x" * 513, ValueError),
        ("a\0b", ValueError),
        ("\ud800", ValueError),
        (7, TypeError),
        (None, TypeError),
    ],
)
def test_a_key_that_is_none_is_refused_everywhere(
    store: TaskStateStore, channel: MemoryChannel, key: Any, error: type[Exception]
) -> None:
    for use in (
        lambda: store.get(key),
        lambda: store.set(key, 1),
        lambda: store.delete(key),
        lambda: store.update({"a": 1, key: 2}),
        lambda: store.update({"a": 1}, expect={key: 2}),
        lambda: store.update({"a": 1}, remove=[key]),
    ):
        with pytest.raises(error, match="key"):
            use()
    assert channel.asked == []


def test_the_longest_key_is_kept(store: TaskStateStore) -> None:
    store.set("ü" * 512, 1)
    assert store.get("ü" * 512) == 1


# --- assets -----------------------------------------------------------------------------------------------------------

ORDERS, STOCK = Asset("orders", "s3://orders"), Asset("stock", "s3://stock")


def test_a_task_without_assets_has_no_asset_store(channel: MemoryChannel) -> None:
    context = context_of()
    assert "asset_state_store" not in context
    with pytest.raises(KeyError):
        context["asset_state_store"]
    assert "asset_state_store" not in context.for_call(lambda **kwargs: None)


def test_with_one_asset_its_store_need_not_be_named(channel: MemoryChannel) -> None:
    states = context_of(outlets=[ORDERS])["asset_state_store"]
    states.set("watermark", "2026-11-15")
    assert states.get("watermark") == "2026-11-15"
    assert states[ORDERS].get("watermark") == "2026-11-15"
    assert states[Asset.ref(name="orders")].compare_and_set("watermark", "2026-11-15", "2026-11-16")
    assert channel.asset_state == {"orders": {"watermark": "2026-11-16"}}
    states.delete("watermark")
    assert states.get("watermark", "none") == "none"
    assert len(states) == 1


def test_with_two_assets_the_store_must_be_named(channel: MemoryChannel) -> None:
    states = context_of(inlets=[ORDERS], outlets=[STOCK])["asset_state_store"]
    states[STOCK].set("k", 1)
    assert channel.asset_state == {"stock": {"k": 1}}
    with pytest.raises(ValueError, match="2 assets; say which"):
        states.get("k")
    with pytest.raises(KeyError, match="neither an inlet nor an outlet"):
        states[Asset("other")]
    with pytest.raises(TypeError, match="not by 'orders'"):
        states["orders"]
    with pytest.raises(AttributeError):
        getattr(states, "nothing")  # noqa: B009 - what is asked for is that it is not there


def test_an_alias_among_the_inlets_stands_for_its_assets(channel: MemoryChannel) -> None:
    meant = [AssetResult(name=name, uri=f"s3://{name}", group="asset") for name in ("orders", "stock")]
    channel.prepared[GetAssetsByAlias] = [AssetsByAliasResult(meant)]
    states = context_of(inlets=[AssetAlias("files")])["asset_state_store"]
    states[STOCK].set("k", 1)
    assert [one.name for one in states] == ["orders", "stock"]
    assert len(context_of(outlets=[AssetAlias("files")])["asset_state_store"]) == 0


# --- values that are kept where tasks run -----------------------------------------------------------------------------


class Shelf(BaseStoreBackend):
    """Keeps values in this process."""

    values: ClassVar[dict[str, Any]] = {}
    gone: ClassVar[list[Any]] = []

    def serialize_task_state_store_to_ref(self, *, value: Any, key: str, scope: TaskScope) -> str:
        place = f"{scope.task_id}/{key}"
        self.values[place] = value
        return place

    def deserialize_task_state_store_from_ref(self, stored: str) -> Any:
        return self.values[stored]

    def serialize_asset_state_store_to_ref(self, *, value: Any, key: str, scope: AssetScope) -> str:
        self.values[f"{scope.name}/{key}"] = value
        return f"{scope.name}/{key}"

    deserialize_asset_state_store_from_ref = deserialize_task_state_store_from_ref

    def get(self, scope: Any, key: str, *, session: Any = None) -> str | None: ...
    def set(self, scope: Any, key: str, value: str, *, expires_at: Any = None, session: Any = None) -> None: ...
    def delete(self, scope: Any, key: str, *, session: Any = None) -> None:
        self.gone.append((scope, key))

    def clear(self, scope: Any, *, all_map_indices: bool = False, session: Any = None) -> None:
        self.gone.append(scope)

    async def aget(self, scope: Any, key: str, *, session: Any = None) -> str | None: ...
    async def aset(self, scope: Any, key: str, value: str, *, expires_at: Any = None, session: Any = None) -> None: ...
    async def adelete(self, scope: Any, key: str, *, session: Any = None) -> None: ...
    async def aclear(self, scope: Any, *, all_map_indices: bool = False, session: Any = None) -> None: ...


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Shelf]]:
    state_store._backends["shelf.Shelf"] = Shelf()
    Shelf.values.clear()
    Shelf.gone.clear()
    monkeypatch.setenv("STANNEL__WORKERS__STATE_STORE_BACKEND", "shelf.Shelf")
    yield Shelf
    del state_store._backends["shelf.Shelf"]


def test_with_a_workers_backend_the_engine_keeps_only_references(
    store: TaskStateStore, channel: MemoryChannel, shelf: type[Shelf], caplog: pytest.LogCaptureFixture
) -> None:
    large = "x" * 100_000
    store.set("k", large)
    store.update({"other": 2})
    assert channel.task_state == {"k": {REFERENCE: "t/k"}, "other": {REFERENCE: "t/other"}}
    assert store.get("k") == large
    channel.task_state["plain"] = 7
    assert store.get("plain") == 7
    assert "'plain' was not stored by Shelf" in caplog.text
    store.delete("k")
    store.clear()
    assert shelf.gone == [(SCOPE, "k"), SCOPE]
    with pytest.raises(ValueError, match="Shelf keeps the values"):
        store.compare_and_set("k", 1, 2)


def test_a_workers_backend_keeps_values_of_assets_too(channel: MemoryChannel, shelf: type[Shelf]) -> None:
    states = context_of(outlets=[ORDERS])["asset_state_store"]
    states.set("k", [1])
    assert channel.asset_state == {"orders": {"k": {REFERENCE: "orders/k"}}}
    assert states.get("k") == [1]


def test_a_workers_backend_must_be_one(store: TaskStateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANNEL__WORKERS__STATE_STORE_BACKEND", "collections.OrderedDict")
    with pytest.raises(TypeError, match="no subclass of BaseStoreBackend"):
        store.set("k", 1)
