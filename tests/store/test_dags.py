"""DAGs are taken over from files, versioned, retired and brought back, and are due when they are due."""

import threading

import pytest
from store.world import NOW, World, after, task

from stannel.errors import UnknownId
from stannel.model.dag import DagSpec
from stannel.model.moments import to_micros
from stannel.model.schedule import DueRun, Interval
from stannel.model.states import RunState
from stannel.store.dags import ParsedFile, due_dags, hold_at_limit, next_due, release_limit, set_next_run


def due_ids(world: World, at=NOW) -> list[str]:
    with world.store.transaction() as tx:
        return [one.dag_id for one in due_dags(tx, to_micros(at), 100)]


def plan_next(world: World, dag_id: str, due: DueRun | None) -> None:
    with world.store.transaction() as tx:
        set_next_run(tx, dag_id, due)


def dirty_runs(world: World) -> list[str]:
    return [row[0] for row in world.sql("SELECT run_id FROM dag_run WHERE dirty = 1 ORDER BY run_id")]


def version_numbers(world: World) -> list[int]:
    return [row[0] for row in world.sql("SELECT number FROM dag_version ORDER BY number")]


def test_a_new_dag_is_active_and_looked_at_first(world):
    spec = world.dag("a", "b")
    status = world.store.dags.get("d")
    assert (status.is_active, status.is_paused, status.is_broken, status.next_run) == (True, False, False, None)
    assert world.store.dags.spec(status.version) == spec
    assert due_ids(world) == ["d"]


def test_a_dag_may_start_paused_as_its_author_or_the_settings_say(world):
    specs = (DagSpec(dag_id="plain"), DagSpec(dag_id="eager", is_paused_upon_creation=False))
    world.store.dags.save_file(ParsedFile(path="x.py", fingerprint="1", dags=specs), now=NOW, paused=True)
    assert {one.dag_id: one.is_paused for one in world.store.dags.all()} == {"plain": True, "eager": False}


def test_the_same_text_is_the_same_version(world):
    world.dag("a")
    before = world.store.dags.get("d").version
    world.dag("a")
    assert world.store.dags.get("d").version == before
    assert version_numbers(world) == [1]


def test_a_changed_dag_gets_the_next_version_and_its_runs_are_looked_at_again(world):
    old = world.dag("a")
    first = world.store.dags.get("d").version
    world.new_run("living")
    world.new_run("ended")
    world.advance()
    world.store.runs.set_state(world.run("ended"), RunState.SUCCESS, now=NOW)
    assert dirty_runs(world) == []
    world.dag("a", "b")
    assert world.store.dags.get("d").version != first
    assert world.store.dags.spec(first) == old
    assert version_numbers(world) == [1, 2]
    assert dirty_runs(world) == ["living"]


def test_an_unchanged_dag_disturbs_nobody(world):
    world.dag("a")
    world.new_run()
    world.advance()
    world.dag("a")
    assert dirty_runs(world) == []


def test_a_dag_that_left_its_file_leaves_the_schedule_but_keeps_its_history(world):
    kept, gone = DagSpec(dag_id="kept"), DagSpec(dag_id="gone", tasks=(task("a"),))
    world.save(kept, gone)
    world.new_run(dag_id="gone")
    world.save(kept)
    assert [one.dag_id for one in world.store.dags.all()] == ["kept"]
    assert [one.dag_id for one in world.store.dags.all(inactive=True)] == ["gone", "kept"]
    assert due_ids(world) == ["kept"]
    assert world.instance("a", dag_id="gone").task_id == "a"


def test_a_dag_that_comes_back_is_planned_anew_with_its_old_version(world):
    spec = DagSpec(dag_id="d")
    world.save(spec)
    version = world.store.dags.get("d").version
    plan_next(world, "d", None)
    world.save()
    world.save(spec)
    assert world.store.dags.get("d").version == version
    assert world.store.dags.get("d").is_active
    assert due_ids(world) == ["d"]


def test_a_broken_file_keeps_its_dags_but_makes_no_runs_until_it_is_mended(world):
    spec = DagSpec(dag_id="d")
    world.save(spec)
    assert world.save(error="SyntaxError") == "SyntaxError"
    status = world.store.dags.get("d")
    assert (status.is_active, status.is_broken) == (True, True)
    assert due_ids(world) == []
    assert world.store.dags.files()[0].error == "SyntaxError"
    world.save(spec)
    assert not world.store.dags.get("d").is_broken
    assert due_ids(world) == ["d"]
    assert world.store.dags.files()[0].error is None


def test_a_file_with_an_error_still_gives_the_dags_that_are_good(world):
    good, bad = DagSpec(dag_id="good"), DagSpec(dag_id="bad")
    world.save(good, bad)
    world.save(good, error="bad has a cycle")
    assert {one.dag_id: one.is_broken for one in world.store.dags.all()} == {"good": False, "bad": True}


def test_a_dag_id_belongs_to_the_file_that_had_it_first(world):
    mine, theirs = DagSpec(dag_id="d", description="mine"), DagSpec(dag_id="d", description="theirs")
    world.save(mine, path="mine.py")
    error = world.save(theirs, DagSpec(dag_id="other"), path="theirs.py")
    assert "mine.py" in error
    assert world.store.dags.get("d").fileloc == "mine.py"
    assert world.store.dags.get("other").fileloc == "theirs.py"
    assert world.store.dags.remove_file("mine.py") == ["d"]
    assert world.save(theirs, path="theirs.py") is None
    assert world.store.dags.spec(world.store.dags.get("d").version) == theirs


def test_a_clash_in_one_file_does_not_retire_the_other_files_dag(world):
    world.save(DagSpec(dag_id="d"), path="first.py")
    world.save(DagSpec(dag_id="d", description="2"), path="second.py")
    world.save(path="second.py")
    assert world.store.dags.get("d").is_active


def test_a_deleted_file_is_forgotten(world):
    world.save(DagSpec(dag_id="d"))
    assert world.store.dags.remove_file("dags.py") == ["d"]
    assert world.store.dags.files() == []
    assert not world.store.dags.get("d").is_active


def test_only_active_unpaused_whole_dags_below_their_limit_are_due(world):
    world.save(*(DagSpec(dag_id=name) for name in ("due", "paused", "limited")))
    world.save(DagSpec(dag_id="broken"), path="b.py")
    world.save(error="no", path="b.py")
    world.store.dags.pause("paused", paused=True)
    with world.store.transaction() as tx:
        hold_at_limit(tx, "limited")
    assert due_ids(world) == ["due"]
    world.store.dags.pause("paused", paused=False)
    with world.store.transaction() as tx:
        release_limit(tx, "limited")
    assert sorted(due_ids(world)) == ["due", "limited", "paused"]


def test_pausing_has_the_runs_looked_at_again(world):
    world.dag("a")
    world.new_run()
    world.advance()
    world.store.dags.pause("d", paused=True)
    assert dirty_runs(world) == ["r"]


def test_the_next_run_is_remembered_and_due_at_its_moment(world):
    world.save(DagSpec(dag_id="soon"), DagSpec(dag_id="later"), DagSpec(dag_id="never"))
    soon = DueRun(NOW, Interval(NOW, after(60)), after(60))
    plan_next(world, "soon", soon)
    plan_next(world, "later", DueRun(after(60), None, after(120)))
    plan_next(world, "never", None)
    assert world.store.dags.get("soon").next_run == soon
    assert world.store.dags.get("never").next_run is None
    with world.store.read() as tx:
        assert next_due(tx) == to_micros(after(60))
    assert due_ids(world, after(59)) == []
    assert due_ids(world, after(200)) == ["soon", "later"]


def test_a_limit_held_by_mistake_is_released_by_the_sweep(world):
    world.save(DagSpec(dag_id="d"))
    with world.store.transaction() as tx:
        hold_at_limit(tx, "d")
    world.store.runs.sweep()
    assert due_ids(world) == ["d"]


def test_an_unknown_dag_is_refused_with_the_nearest_ids(world):
    world.save(DagSpec(dag_id="orders"))
    with pytest.raises(UnknownId, match="orders"):
        world.store.dags.get("order")
    with pytest.raises(UnknownId):
        world.store.dags.pause("order", paused=True)
    with pytest.raises(UnknownId):
        world.store.dags.spec("no-such-version")


def test_two_parsers_that_save_at_once_number_their_versions_one_after_the_other(world):
    def save(number: int) -> None:
        world.save(DagSpec(dag_id="d", description=str(number)))

    threads = [threading.Thread(target=save, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert version_numbers(world) == list(range(1, 9))
