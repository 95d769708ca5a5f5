"""State in a folder: the contract of a backend, held against the one that comes with the SDK."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.memory_channel import MemoryChannel

from stannel.model.state_store import REFERENCE, Change, Put, StateRefused
from stannel.sdk import state_store
from stannel.sdk.comms import use_channel
from stannel.sdk.state import AssetScope, BaseStoreBackend, TaskScope
from stannel.sdk.state_store import TaskStateStore
from stannel.sdk.state_store_folder import FolderStoreBackend
from stannel.settings import load_settings
from stannel.store.opening import open_store
from stannel.store.state_backend import BackendStates, load_backend
from stannel.store.state_stores import TaskKeeper

PATH = "stannel.sdk.state_store_folder.FolderStoreBackend"
NOW = datetime.now(UTC)
MINE, OTHER = TaskScope("d", "r", "t", 0), TaskScope("d", "r", "t", 1)
ODD_KEYS = ["a/b", "..", ".hidden", "ü", "x" * 512, "x" * 511 + "y", "A%2f", "a%2f;b", " "]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("STANNEL_STATE_FOLDER", str(tmp_path / "state"))
    yield tmp_path / "state"
    state_store._backends.pop(PATH, None)


@pytest.fixture
def backend(folder: Path) -> FolderStoreBackend:
    return FolderStoreBackend()


def test_keys_of_every_kind_are_kept_apart(backend: FolderStoreBackend, folder: Path) -> None:
    scopes = [MINE, OTHER, AssetScope(name="orders"), AssetScope(uri="s3://a/b"), AssetScope(asset_id=7)]
    for number, scope in enumerate(scopes):
        for key in ODD_KEYS:
            backend.set(scope, key, f'"{number} {len(key)} {key[-1]}"')
    for number, scope in enumerate(scopes):
        for key in ODD_KEYS:
            assert backend.get(scope, key) == f'"{number} {len(key)} {key[-1]}"'
    assert all(folder in file.resolve().parents for file in folder.rglob("*"))


def test_delete_and_clear_forget_what_is_meant_and_nothing_else(backend: FolderStoreBackend) -> None:
    for scope in (MINE, OTHER):
        for key in ("a", "b"):
            backend.set(scope, key, "1")
    backend.delete(MINE, "a")
    backend.delete(MINE, "never")
    assert (backend.get(MINE, "a"), backend.get(MINE, "b"), backend.get(OTHER, "a")) == (None, "1", "1")
    backend.clear(MINE)
    assert (backend.get(MINE, "b"), backend.get(OTHER, "a")) == (None, "1")
    backend.clear(MINE, all_map_indices=True)
    assert backend.get(OTHER, "a") is None


def test_what_has_expired_is_not_there_and_cleaned_up(backend: FolderStoreBackend, folder: Path) -> None:
    backend.set(MINE, "old", "1", expires_at=NOW - timedelta(seconds=1))
    backend.set(MINE, "new", "1", expires_at=NOW + timedelta(days=1))
    assert (backend.get(MINE, "old"), backend.get(MINE, "new")) == (None, "1")
    backend.cleanup()
    assert len([file for file in folder.rglob("*") if file.is_file()]) == 1


def test_async_code_has_the_same_methods(backend: FolderStoreBackend) -> None:
    async def use() -> list[Any]:
        await backend.aset(MINE, "k", "1")
        found = [await backend.aget(MINE, "k")]
        await backend.adelete(MINE, "k")
        await backend.aset(MINE, "l", "1")
        await backend.aclear(MINE)
        return [*found, await backend.aget(MINE, "k"), await backend.aget(MINE, "l")]

    assert asyncio.run(use()) == ["1", None, None]


def test_tasks_may_keep_values_there_and_the_engine_only_where_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANNEL__WORKERS__STATE_STORE_BACKEND", PATH)
    channel, large = MemoryChannel(), ["x" * 1000] * 1000
    with use_channel(channel):
        store = TaskStateStore("ti", MINE)
        store.set("k", large)
        assert store.get("k") == large
        place = channel.task_state["k"][REFERENCE]
        assert (folder / place).exists()
        store.set("k", 2)
        assert channel.task_state["k"][REFERENCE] == place
        store.delete("k")
        assert not (folder / place).exists()
        assert store.get("k", "gone") == "gone"


# --- where the engine runs --------------------------------------------------------------------------------------------


def test_the_engine_passes_everything_on_to_a_backend(folder: Path, tmp_path: Path) -> None:
    settings = {"STANNEL__STATE_STORE__BACKEND": PATH, "STANNEL__STATE_STORE__CLEAR_ON_SUCCESS": "true"}
    store = open_store(load_settings(tmp_path / "home", settings))
    keeper = TaskKeeper(1, MINE, 1, "a")
    states = store.states
    assert isinstance(states, BackendStates)
    assert states.change(keeper, Change(put={"a": Put("1"), "b": Put("2")}), now=NOW)
    assert states.change(keeper, Change(remove=("a",)), now=NOW)
    assert (states.get(keeper, "a", now=NOW), states.get(keeper, "b", now=NOW)) == (None, "2")
    with pytest.raises(StateRefused, match="cannot compare") as refusal:
        states.change(keeper, Change(put={"b": Put("3")}, expect={"b": 2}), now=NOW)
    assert refusal.value.status == 501
    assert states.get(keeper, "b", now=NOW) == "2"
    states.succeeded(keeper)
    assert states.get(keeper, "b", now=NOW) is None
    assert store.state_stores.of_tasks(now=NOW) == []
    store.close()


@pytest.mark.parametrize(
    ("path", "words"),
    [("collections.OrderedDict", "no subclass of BaseStoreBackend"), ("nowhere.Backend", "cannot be imported")],
)
def test_a_backend_that_is_none_keeps_the_engine_from_starting(path: str, words: str) -> None:
    with pytest.raises(Exception, match=words):
        load_backend(path)


def test_the_base_class_names_what_a_backend_must_have() -> None:
    assert BaseStoreBackend.__abstractmethods__ == {
        *("get", "set", "delete", "clear"),
        *("aget", "aset", "adelete", "aclear"),
    }
