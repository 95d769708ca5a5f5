"""What a running task may ask of state stores, and what it may not."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from scheduler.conftest import Stage, task

from stannel.execution.answers import answer
from stannel.model.asset import AnyOfAlias, AssetAt, AssetNamed, AssetSpec, EventSource, NewEvent, ThisAsset
from stannel.model.run import Attempt
from stannel.protocol import replies, requests
from stannel.protocol.refusal import Refused
from stannel.protocol.schema import ErrorCode
from stannel.scheduler.expiry import forget_expired_state
from stannel.triggerer.services import _NOBODY

LATER = datetime.now(UTC) + timedelta(days=1)
ORDERS = ThisAsset("orders", "s3://orders")
ASSETS = tuple(AssetSpec(name=name, uri=f"s3://{name}") for name in ("orders", "stock", "shelf", "aliased", "foreign"))


class Asking:
    """Asks as one attempt."""

    def __init__(self, stage: Stage, attempt: Attempt) -> None:
        self.stage, self.attempt = stage, attempt
        self.ti = attempt.attempt_id

    def __call__(self, request: requests.Request) -> Any:
        return answer(self.stage.store, self.attempt, request, xcom_limit=1000)

    def refused(self, request: requests.Request) -> Refused:
        with pytest.raises(Refused) as refusal:
            self(request)
        return refusal.value

    def set(self, key: str, value: Any, expires_at: datetime | None = None) -> Any:
        return self(requests.SetTaskStateStore(ti_id=self.ti, key=key, value=value, expires_at=expires_at))

    def get(self, key: str) -> Any:
        return self(requests.GetTaskStateStore(self.ti, key)).value

    def kept(self) -> int:
        states = self.stage.store.state_stores
        return len(states.of_tasks(now=datetime.now(UTC))) + len(states.of_assets())


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, STANNEL__STATE_STORE__MAX_VALUE_STORAGE_BYTES="100")
    yield stage
    stage.store.close()


@pytest.fixture
def ask(stage: Stage) -> Asking:
    inlets = (AssetNamed("stock"), AssetAt("s3://shelf"), AnyOfAlias("files"))
    stage.dag(
        task("t", inlets=inlets, outlets=(ORDERS,)),
        task("other", inlets=tuple(ThisAsset(one.name, one.uri) for one in ASSETS)),
        assets=ASSETS,
    )
    emitted = NewEvent(of=AssetNamed("aliased"), source=EventSource.WATCHER, aliases=("files",))
    stage.store.events.register([emitted], now=stage.now)
    stage.trigger(run_id="now")
    stage.tick()
    return Asking(stage, stage.claim()["t"])


def test_a_task_keeps_reads_and_forgets_its_keys(ask: Asking) -> None:
    assert ask.set("a/b", {"x": [1, None]}, LATER) == replies.OKResponse()
    assert ask.get("a/b") == {"x": [1, None]}
    assert ask(requests.DeleteTaskStateStore(ask.ti, "a/b")) == replies.OKResponse()
    missing = ask.refused(requests.GetTaskStateStore(ask.ti, "a/b"))
    assert (missing.code, missing.detail, missing.in_body) == (ErrorCode.TASK_STORE_NOT_FOUND, {"key": "a/b"}, True)
    ask.set("c", 1)
    assert ask(requests.ClearTaskStateStore(ask.ti)) == replies.OKResponse()
    assert ask.kept() == 0


def test_several_keys_change_at_once_if_all_is_as_expected(ask: Asking) -> None:
    put = requests.ChangeStateStore(ti_id=ask.ti, put={"a": 1, "b": 2}, expires_at={"a": LATER}, expect={"a": None})
    assert ask(put) == replies.OKResponse(ok=True)
    assert ask(put) == replies.OKResponse(ok=False)
    assert ask(requests.ChangeStateStore(ti_id=ask.ti, put={"c": 3}, remove=["b"], expect={"a": 1, "b": 2})).ok
    assert [(one.key, one.value) for one in ask.stage.store.state_stores.of_tasks(now=datetime.now(UTC))] == [
        ("a", 1),
        ("c", 3),
    ]


def test_what_has_expired_is_neither_read_nor_kept(ask: Asking) -> None:
    ask.set("old", 1, datetime.now(UTC) - timedelta(seconds=1))
    ask.set("new", 1, LATER)
    assert ask.refused(requests.GetTaskStateStore(ask.ti, "old")).code is ErrorCode.TASK_STORE_NOT_FOUND
    assert forget_expired_state(ask.stage.store, datetime.now(UTC)) == 1
    assert ask.get("new") == 1


def test_a_scheduler_cleans_up_in_passing(ask: Asking) -> None:
    ask.set("old", 1, ask.stage.now - timedelta(seconds=1))
    ask.stage.scheduler._keep_lease()
    assert ask.stage.store.state_stores.expired(ask.stage.now) == 0


BAD: dict[str, tuple[requests.Request, int]] = {
    "None": (requests.SetTaskStateStore(ti_id="TI", key="k", value=None, expires_at=None), 422),
    "oversize": (requests.SetTaskStateStore(ti_id="TI", key="k", value="x" * 99, expires_at=None), 422),
    "an empty key": (requests.SetTaskStateStore(ti_id="TI", key="", value=1, expires_at=None), 422),
    "a key too long": (requests.SetTaskStateStore(ti_id="TI", key="k" * 513, value=1, expires_at=None), 422),
    "a NUL in a key": (requests.SetTaskStateStore(ti_id="TI", key="a\0", value=1, expires_at=None), 422),
    "one bad of two": (requests.ChangeStateStore(ti_id="TI", put={"a": 1, "b": None}), 422),
    "both put and removed": (requests.ChangeStateStore(ti_id="TI", put={"a": 1}, remove=["a"]), 422),
    "the expiry of nothing": (requests.ChangeStateStore(ti_id="TI", put={"a": 1}, expires_at={"b": LATER}), 422),
    "nobody's": (requests.ChangeStateStore(put={"a": 1}), 422),
    "two owners": (requests.ChangeStateStore(ti_id="TI", name="orders", put={"a": 1}), 422),
    "another task's": (requests.SetTaskStateStore(ti_id="other", key="k", value=1, expires_at=None), 403),
    "several of another task": (requests.ChangeStateStore(ti_id="other", put={"a": 1}), 403),
    "an asset of others": (requests.SetAssetStateStoreByName("foreign", "k", 1), 403),
    "an asset nobody knows": (requests.SetAssetStateStoreByName("nobody", "k", 1), 404),
    "an asset nobody knows by uri": (requests.SetAssetStateStoreByUri("s3://nobody", "k", 1), 404),
    "None for an asset": (requests.SetAssetStateStoreByName("orders", "k", None), 422),
    "oversize for an asset": (requests.SetAssetStateStoreByUri("s3://orders", "k", "x" * 99), 422),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_kept_is_refused_and_nothing_is_written(ask: Asking, name: str) -> None:
    request, status = BAD[name]
    if getattr(request, "ti_id", None) == "TI":
        request = type(request)(**{**_fields(request), "ti_id": ask.ti})
    refusal = ask.refused(request)
    assert (refusal.detail or {})["status_code"] == status
    assert refusal.code is (ErrorCode.PERMISSION_DENIED if status == 403 else ErrorCode.API_SERVER_ERROR)
    assert ask.kept() == 0


def _fields(request: Any) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__struct_fields__}


@pytest.mark.parametrize("kind", ["Get", "Delete", "Clear"])
def test_another_instances_keys_can_be_neither_read_nor_forgotten(ask: Asking, kind: str) -> None:
    ask.set("k", 1)
    request = getattr(requests, f"{kind}TaskStateStore")(*["other", "k"][: 1 if kind == "Clear" else 2])
    assert ask.refused(request).code is ErrorCode.PERMISSION_DENIED
    assert ask.get("k") == 1


@pytest.mark.parametrize("name", ["orders", "stock", "shelf", "aliased"])
def test_a_task_uses_the_keys_of_its_inlets_and_outlets_by_name_and_by_uri(ask: Asking, name: str) -> None:
    assert ask(requests.SetAssetStateStoreByName(name, "k", 1)) == replies.OKResponse()
    assert ask(requests.GetAssetStateStoreByUri(f"s3://{name}", "k")).value == 1
    assert ask(requests.SetAssetStateStoreByUri(f"s3://{name}", "k", 2)) == replies.OKResponse()
    assert ask(requests.ChangeStateStore(name=name, put={"k": 3}, expect={"k": 2})).ok
    assert ask(requests.ChangeStateStore(uri=f"s3://{name}", put={"l": 4}, expect={"k": 3})).ok
    assert ask(requests.DeleteAssetStateStoreByUri(f"s3://{name}", "l")) == replies.OKResponse()
    assert ask(requests.DeleteAssetStateStoreByName(name, "k")) == replies.OKResponse()
    missing = ask.refused(requests.GetAssetStateStoreByName(name, "k"))
    assert (missing.code, missing.detail, missing.in_body) == (ErrorCode.ASSET_STORE_NOT_FOUND, {"key": "k"}, True)
    ask(requests.SetAssetStateStoreByName(name, "k", 1))
    ask(requests.ClearAssetStateStoreByName(name))
    ask(requests.SetAssetStateStoreByName(name, "k", 1))
    ask(requests.ClearAssetStateStoreByUri(f"s3://{name}"))
    assert ask.kept() == 0


def test_an_assets_value_tells_which_task_or_that_a_watcher_wrote_it(ask: Asking) -> None:
    ask(requests.SetAssetStateStoreByName("orders", "k", 1))
    [found] = ask.stage.store.state_stores.of_assets(name="orders")
    assert found.writer == {"kind": "task", "dag_id": "d", "run_id": "now", "task_id": "t", "map_index": -1}
    Asking(ask.stage, _NOBODY)(requests.SetAssetStateStoreByName("foreign", "k", 1))
    [found] = ask.stage.store.state_stores.of_assets(name="foreign")
    assert found.writer == {"kind": "watcher"}


def test_whoever_is_no_task_has_no_keys_of_a_task(ask: Asking) -> None:
    refusal = Asking(ask.stage, _NOBODY).refused(requests.GetTaskStateStore("", "k"))
    assert refusal.code is ErrorCode.PERMISSION_DENIED
