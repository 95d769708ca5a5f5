"""What deferred tasks wait for, from the command line."""

from datetime import UTC, datetime, timedelta

import pytest
from store.world import World, task

from stannel.cli.logs import path_of
from stannel.model.asset import AssetSpec, ThisAsset, WatcherSpec
from stannel.model.dag import DagSpec
from stannel.model.schedule import OnAssets
from stannel.model.trigger import Failure, Firing
from stannel.settings import load_settings
from stannel.store.store import Store
from stannel.supervisor.tasklog import append_note, watcher_log_path

SECRET = "hush-hush"


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


@pytest.fixture
def waiting(world: World) -> World:
    """A run of `d` whose tasks `a` and `b` wait, for a trigger of their own each."""
    world.deferred("a", "b", classpath="my.file.Watch", kwargs={"token": SECRET}, timeout=60)
    return world


def take_lease(store: Store, owner: str = "triggerer-1", **detail: object) -> None:
    now = datetime.now(UTC)
    store.leases.take(owner, "triggerer", hostname="here", pid=77, now=now, seconds=600)
    store.leases.renew(owner, now=now, seconds=600, detail=dict(detail))


def test_a_trigger_is_listed_with_its_task_its_class_and_what_it_waits_for(stannel, waiting):
    first, second = stannel.json("triggers", "list")
    assert (first["id"], first["dag_id"], first["run_id"], first["task"]) == (1, "d", "r", "a")
    assert (first["trigger"], first["classpath"], first["state"]) == ("Watch", "my.file.Watch", "waiting")
    assert first["owner"] is None
    assert first["waits_for"].endswith("no triggerer is running; start one with: stannel triggerer")
    assert second["task"] == "b"
    assert "Watch" in stannel("triggers", "list").stdout


def test_a_trigger_that_is_run_names_who_runs_it(stannel, waiting, store):
    take_lease(store, capacity=10, running=2, queues=None)
    store.triggers.claim("triggerer-1", most=1, queues=None, now=datetime.now(UTC))
    first, second = stannel.json("triggers", "list")
    assert (first["owner"], first["waits_for"]) == (
        "triggerer-1",
        "its event, until 2026-03-01 12:01:00Z at the latest",
    )
    assert second["waits_for"].endswith("a triggerer takes it next")


def test_the_list_can_be_narrowed(stannel, waiting, store):
    store.triggers.cancel(1, now=datetime.now(UTC))
    assert [row["id"] for row in stannel.json("triggers", "list", "--state", "killed")] == [1]
    assert [row["id"] for row in stannel.json("triggers", "list", "--state", "waiting")] == [2]
    assert [row["id"] for row in stannel.json("triggers", "list", "--dag", "d")] == [1, 2]
    assert stannel.json("triggers", "list", "--dag", "orders") == []
    assert "did you mean orders?" in stannel("triggers", "list", "--dag", "order", code=1).stderr


def test_a_list_that_was_cut_says_so(stannel, waiting):
    result = stannel("triggers", "list", "--limit", "1", "-o", "plain")
    assert len(result.stdout.splitlines()) == 1
    assert "There are more than 1" in result.stderr
    assert stannel("triggers", "list", "--limit", "2").stderr == ""


def test_nothing_that_waits_is_said_in_words(stannel, store):
    assert stannel("triggers", "list").stderr.startswith("No task waits for a trigger")


def test_the_arguments_of_a_trigger_are_never_shown(stannel, waiting):
    shown = stannel.json("triggers", "show", "1")
    assert (shown["task_id"], shown["deadline_at"]) == ("a", "2026-03-01T12:01:00Z")
    for form in ("table", "json", "yaml", "plain"):
        assert SECRET not in stannel("triggers", "show", "1", "-o", form).output
        assert SECRET not in stannel("triggers", "list", "-o", form).output


@pytest.mark.parametrize("verb", ["show", "logs", "cancel"])
def test_a_trigger_that_is_not_there_is_refused_with_the_likely_reason(stannel, waiting, verb):
    result = stannel("triggers", verb, "9", code=1)
    assert result.stderr.startswith("stannel: There is no trigger 9; one that has fired or was cancelled is gone.")


def test_cancelling_fails_the_task_and_says_what_happens(stannel, waiting, store):
    take_lease(store, capacity=10, running=2, queues=None)
    result = stannel("triggers", "cancel", "1", "2", "1", "--yes")
    assert result.stderr.splitlines() == [
        "Trigger 1 is cancelled: 'a' in run 'r' failed; its on_kill runs now.",
        "Trigger 2 is cancelled: 'b' in run 'r' failed; its on_kill runs now.",
    ]
    assert waiting.states() == {"a": "failed", "b": "failed"}
    assert waiting.instance("a").note == "a user cancelled what it waited for"


def test_cancelling_without_a_triggerer_says_that_on_kill_has_to_wait(stannel, waiting):
    result = stannel("triggers", "cancel", "1", "--yes")
    assert "its on_kill has to wait: no triggerer is running; start one with: stannel triggerer" in result.stderr


def test_cancelling_a_wait_for_a_moment_has_nothing_to_kill(stannel, world):
    moment = {"__classname__": "datetime.datetime", "__version__": 1, "__data__": "2999-01-01T00:00:00+00:00"}
    world.deferred(classpath="stannel.triggers.temporal.DateTimeTrigger", kwargs={"moment": moment})
    assert "the moment 2999-01-01" in stannel.json("triggers", "show", "1")["waits_for"]
    assert "so there is nothing to kill" in stannel("triggers", "cancel", "1", "--yes").stderr
    assert stannel.json("triggers", "list") == []


def test_cancelling_twice_changes_nothing_more(stannel, waiting):
    stannel("triggers", "cancel", "1", "--yes")
    again = stannel("triggers", "cancel", "1", "--yes")
    assert again.stderr == "Nothing waited for trigger 1 any more; nothing was changed.\n"


def test_cancelling_asks_first_and_an_unknown_id_spoils_nothing(stannel, waiting):
    result = stannel("triggers", "cancel", "1", code=1, stdin="n\n")
    assert "1: a in run 'r' of 'd'" in result.stderr
    assert "Cancel this wait; its task fails without another try?" in result.stderr
    stannel("triggers", "cancel", "1", "9", "--yes", code=1)
    assert waiting.states() == {"a": "deferred", "b": "deferred"}


def test_the_log_of_a_trigger_is_that_of_its_task(stannel, waiting, home):
    run, instance = waiting.run(), waiting.instance("a")
    path = path_of(home / "logs", run, instance, 1)
    append_note(path, "task", "before the wait")
    append_note(path, "my.file.Watch", "looking", trigger_id=1)
    text = stannel("triggers", "logs", "1").stdout
    assert [line.split(maxsplit=1)[1] for line in text.splitlines()] == [
        "INFO     before the wait",
        "INFO     [trigger 1] looking",
    ]
    assert '"trigger_id":1' in stannel("triggers", "logs", "1", "-o", "json").stdout
    assert "There is no log of try 1" in stannel("triggers", "logs", "2", code=1).stderr


def test_a_deferred_task_says_which_trigger_it_waits_for(stannel, waiting, store):
    store.triggers.cancel(2, now=datetime.now(UTC))
    rows = {row["task"]: row["why"] for row in stannel.json("tasks", "list", "d", "--run", "latest")}
    assert rows["a"] == (
        "it waits for Watch (trigger 1) since 2026-03-01 12:00:00Z, until 2026-03-01 12:01:00Z at the latest; "
        "no triggerer is running; start one with: stannel triggerer"
    )
    assert rows["b"] == "a user cancelled what it waited for"
    assert "trigger 1" in stannel("tasks", "state", "d", "a").stdout


def test_triggerers_are_listed_with_how_much_they_run(stannel, waiting, store):
    assert stannel("triggerers", "list").stderr.startswith("No triggerer is running; start one with")
    take_lease(store, capacity=10, running=2, queues=["gpu"])
    late = datetime.now(UTC) - timedelta(hours=1)
    store.leases.take("triggerer-0", "triggerer", hostname="there", pid=66, now=late, seconds=1)
    gone, alive = stannel.json("triggerers", "list")
    assert (gone["owner"], gone["health"], gone["capacity"]) == ("triggerer-0", "gone", None)
    assert (alive["health"], alive["hostname"], alive["pid"]) == ("healthy", "here", 77)
    assert (alive["capacity"], alive["running"], alive["queues"]) == (10, 2, ["gpu"])


def test_a_queue_that_no_triggerer_serves_is_named(stannel, world, store):
    world.deferred(queue="gpu")
    take_lease(store, capacity=10, running=0, queues=None, trouble="no memory")
    result = stannel("triggerers", "list")
    assert "stalled: no memory" in result.stdout
    assert result.stderr == "Triggers wait in queues that no triggerer serves: gpu\n"


def test_a_task_names_the_trigger_of_its_own_run(stannel, waiting):
    waiting.new_run("second")
    waiting.advance()
    for attempt in waiting.claim():
        waiting.defer(attempt)
    whys = [stannel.json("tasks", "list", "d", "--run", run)[0]["why"] for run in ("r", "second")]
    assert ["(trigger 1)" in whys[0], "(trigger 3)" in whys[1]] == [True, True]


# --- watchers ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def watching(world: World) -> World:
    """A DAG that waits for the asset `orders`, which has a watcher."""
    watcher = WatcherSpec(name="inbox", classpath="my.file.Watch", kwargs={"token": SECRET})
    spec = DagSpec(
        dag_id="d",
        fileloc="d.py",
        schedule=OnAssets(ThisAsset("orders", "orders")),
        tasks=(task("t"),),
        assets=(AssetSpec(name="orders", uri="orders", watchers=(watcher,)),),
    )
    world.save(spec, path="d.py")
    return world


def test_a_watcher_is_shown_with_how_it_fares(stannel, watching, store):
    take_lease(store, capacity=10, running=1, queues=None)
    now = datetime.now(UTC)
    [one] = store.triggers.claim("triggerer-1", most=1, queues=None, now=now)
    failure = Failure(error="Trigger failure", traceback=["ValueError: no such topic"])
    firing = Firing(id=one.id, epoch=one.epoch, what=failure, is_watch=True, again_at=now + timedelta(hours=1))
    assert store.triggers.settle("triggerer-1", [firing], now=now) == [True]
    [row] = stannel.json("triggers", "list")
    assert (row["task"], row["dag_id"], row["owner"]) == ("inbox of asset orders", None, "triggerer-1")
    assert row["waits_for"].startswith("its next attempt at ")
    assert row["waits_for"].endswith(", after 1 that failed")
    shown = stannel.json("triggers", "show", str(one.id))["watch"]
    assert (shown["last_error"], shown["failures"], shown["events"]) == ("ValueError: no such topic", 1, 0)
    assert SECRET not in stannel("triggers", "show", str(one.id)).output


def test_a_watcher_has_a_log_of_its_own(stannel, watching, home):
    assert "There is no log at" in stannel("triggers", "logs", "1", code=1).stderr
    path = watcher_log_path(load_settings(home, {}).logging.base_log_folder, "orders", "inbox")
    append_note(path, "stannel.triggerer", "it looks for news", trigger_id=1)
    assert "it looks for news" in stannel("triggers", "logs", "1").stdout


def test_a_watcher_cannot_be_cancelled(stannel, watching, store):
    assert "Pause the DAGs" in stannel("triggers", "cancel", "1", "--yes", code=1).stderr
    assert len(store.triggers.all()) == 1
