"""XComs are written over, read by run, task, index and key, and go with their run."""

import pytest
from store.world import scheduled_run

from stannel.store.xcoms import XCom, mapped_lengths


@pytest.fixture
def run(world):
    world.dag("a", "b")
    return world.new_run()


def put(world, run, value, *, task_id="a", key="k", index=-1, length=None) -> None:
    row = {"run_pk": run.pk, "task_id": task_id, "map_index": index, "key": key, "value": value, "length": length}
    world.store.xcoms.put([row | {"created_at": 0}])


def test_a_value_is_read_as_it_was_written(world, run):
    put(world, run, '{"x": "ü"}')
    assert world.store.xcoms.get(run.pk, "a", -1, "k") == '{"x": "ü"}'
    assert world.store.xcoms.get(run.pk, "a", 0, "k") is None
    assert world.store.xcoms.get(run.pk, "b", -1, "k") is None
    assert world.store.xcoms.get(run.pk, "a", -1, "other") is None


def test_a_value_is_written_over(world, run):
    put(world, run, "1", length=3)
    put(world, run, "2", length=4)
    assert world.store.xcoms.of_run(run.pk) == [XCom("a", -1, "k", "2")]
    with world.store.read() as tx:
        assert mapped_lengths(tx, run.pk) == {("a", "k"): 4}


def test_the_values_of_a_mapped_task_come_in_the_order_of_their_index(world, run):
    for index in (2, 10, 0, -1):
        put(world, run, str(index), index=index)
    assert world.store.xcoms.series(run.pk, "a", "k") == ["0", "2", "10"]
    assert world.store.xcoms.count(run.pk, "a", "k") == 3


def test_a_list_gives_as_many_instances_as_it_has_items_and_a_mapped_task_as_many_as_left_a_value(world, run):
    put(world, run, "[]", length=0)
    put(world, run, "7", task_id="b")
    for index in (0, 2):
        put(world, run, "[1]", task_id="mapped", index=index, length=1)
    with world.store.read() as tx:
        assert mapped_lengths(tx, run.pk) == {("a", "k"): 0, ("mapped", "k"): 2}


def test_a_value_can_be_deleted(world, run):
    put(world, run, "1")
    put(world, run, "2", key="other")
    world.store.xcoms.delete(run.pk, "a", -1, "k")
    assert world.store.xcoms.of_run(run.pk) == [XCom("a", -1, "other", "2")]


def test_the_prior_value_is_this_runs_or_the_latest_earlier_ones(world):
    spec = world.dag("a")
    version = world.store.dags.get("d").version
    first, second, third = (
        world.store.runs.create(version, spec, scheduled_run(day), now=scheduled_run(day).run_after)
        for day in (1, 2, 3)
    )

    def prior(run):
        return world.store.xcoms.get_prior("d", run.pk, "a", -1, "k")

    assert prior(third) is None
    put(world, first, "1")
    assert (prior(first), prior(second), prior(third)) == ("1", "1", "1")
    put(world, third, "3")
    assert (prior(second), prior(third)) == ("1", "3")


def test_a_run_is_found_by_its_names(world, run):
    assert world.store.xcoms.run_pk("d", "r") == run.pk
    assert world.store.xcoms.run_pk("d", "nobody") is None


def test_a_very_long_value_survives(world, run):
    put(world, run, '"' + "x" * 5_000_000 + '"')
    assert len(world.store.xcoms.get(run.pk, "a", -1, "k")) == 5_000_002
