"""State stores from the command line."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stannel.model.asset import AssetSpec, ThisAsset
from stannel.model.dag import DagSpec, TaskSpec
from stannel.model.state_store import Change, Put, TaskScope
from stannel.store.dags import ParsedFile
from stannel.store.state_stores import TaskKeeper

OF_TASK = ("--dag", "orders", "--task", "extract")
SHOP = DagSpec(
    dag_id="shop",
    fileloc="shop.py",
    tasks=(TaskSpec(task_id="sell", outlets=(ThisAsset("stock", "s3://stock"),)),),
    assets=(AssetSpec(name="stock", uri="s3://stock"),),
)


@pytest.fixture
def run(store, make_run):
    store.dags.save_file(ParsedFile(path="shop.py", fingerprint="1", dags=(SHOP,)), now=datetime.now(UTC))
    made = make_run()
    assert OF_TASK[3] in {one.task_id for one in store.tasks.of_run(made)}
    return made


def test_a_key_comes_back_as_it_was_stored(stannel, run):
    stannel("state-store", "set", "a/b", '{"x": [1]}', *OF_TASK)
    assert stannel("state-store", "get", "a/b", *OF_TASK, "--run", "first").stdout == '{"x":[1]}\n'
    assert stannel.json("state-store", "get", "a/b", *OF_TASK) == {"key": "a/b", "value": {"x": [1]}}
    [row] = stannel.json("state-store", "list", "--dag", "orders", "--run", "latest")
    assert (row["owner"], row["key"], row["value"]) == ("orders / first / extract", "a/b", {"x": [1]})
    assert row["expires_at"] is not None
    stannel("state-store", "delete", "a/b", *OF_TASK)
    assert "There is no key" in stannel("state-store", "get", "a/b", *OF_TASK, code=1).stderr


def test_an_assets_keys_never_expire_and_say_who_wrote_them(stannel, run):
    stannel("state-store", "set", "mark", "-", "--asset", "stock", stdin='"today"')
    [row] = stannel.json("state-store", "list", "--asset", "stock")
    assert (row["owner"], row["value"], row["expires_at"]) == ("asset stock", "today", None)
    assert row["writer"] == {"kind": "cli"}
    stannel("state-store", "delete", "--all", "--asset", "stock")
    assert stannel.json("state-store", "list") == []


def test_a_key_lives_as_long_as_it_is_told(stannel, run):
    stannel("state-store", "set", "a", "1", *OF_TASK, "--forever")
    stannel("state-store", "set", "b", "1", *OF_TASK, "--expires", "2999-01-01T00:00:00+00:00")
    rows = stannel.json("state-store", "list", "--task", "extract")
    assert [row["expires_at"] and row["expires_at"][:4] for row in rows] == [None, "2999"]


def test_only_what_has_expired_is_cleaned(stannel, store, run):
    keeper = TaskKeeper(run.pk, TaskScope("orders", "first", "extract"))
    now = datetime.now(UTC)
    old = {f"k{number}": Put("1", now - timedelta(days=1)) for number in range(5)}
    store.state_stores.change(keeper, Change(put={**old, "new": Put("1")}), now=now)
    assert "5 keys have expired; nothing was deleted" in stannel("state-store", "clean", "--dry-run").stderr
    env = {"STANNEL__STATE_STORE__STATE_CLEANUP_BATCH_SIZE": "2"}
    assert "5 expired keys deleted" in stannel("state-store", "clean", env=env).stderr
    assert [row["key"] for row in stannel.json("state-store", "list")] == ["new"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("get", "k"), "Say whose key it is"),
        (("get", "k", "--dag", "orders", "--asset", "stock"), "either --asset"),
        (("set", "k", "nonsense", *OF_TASK), "no JSON"),
        (("set", "k", "null", *OF_TASK), "null cannot be stored"),
        (("delete", *OF_TASK), "either a KEY or --all"),
        (("list", "--run", "first"), "--run needs --dag"),
    ],
)
def test_a_command_that_cannot_be_meant_says_why(stannel, run, args, words):
    assert words in stannel("state-store", *args, code=2).stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("get", "k", "--dag", "orders", "--task", "extrct"), "did you mean extract"),
        (("get", "k", *OF_TASK, "--map-index", "3"), "extract[3]"),
        (("get", "k", "--asset", "stok"), "did you mean stock"),
        (("set", "k", f'"{"x" * 70000}"', *OF_TASK), "more than 65,535"),
        (("set", "", "1", *OF_TASK), "1 to 512 characters"),
        (("delete", "k", *OF_TASK), "nothing was deleted"),
    ],
)
def test_what_does_not_exist_or_fit_is_refused(stannel, run, args, words):
    assert words in stannel("state-store", *args, code=1).stderr


def test_with_a_backend_single_keys_work_and_lists_do_not(stannel, run, tmp_path: Path, monkeypatch):
    (tmp_path / "drawer.py").write_text(DRAWER)
    monkeypatch.syspath_prepend(tmp_path)
    env = {"STANNEL__STATE_STORE__BACKEND": "drawer.Drawer"}
    stannel("state-store", "set", "k", "1", *OF_TASK, env=env)
    assert stannel("state-store", "get", "k", *OF_TASK, env=env).stdout == "1\n"
    assert stannel.json("state-store", "list") == []
    assert "Drawer keeps the state" in stannel("state-store", "list", env=env, code=1).stderr
    assert "Drawer was told to clean up" in stannel("state-store", "clean", env=env).stderr


DRAWER = """
from stannel.sdk.state import BaseStoreBackend

class Drawer(BaseStoreBackend):
    kept = {}

    def get(self, scope, key, *, session=None):
        return self.kept.get((scope, key))

    def set(self, scope, key, value, *, expires_at=None, session=None):
        self.kept[scope, key] = value

    def delete(self, scope, key, *, session=None):
        self.kept.pop((scope, key), None)

    def clear(self, scope, *, all_map_indices=False, session=None):
        for place in [one for one in self.kept if one[0] == scope]:
            del self.kept[place]

    async def aget(self, scope, key, *, session=None): ...
    async def aset(self, scope, key, value, *, expires_at=None, session=None): ...
    async def adelete(self, scope, key, *, session=None): ...
    async def aclear(self, scope, *, all_map_indices=False, session=None): ...
"""
