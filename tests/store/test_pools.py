"""Pools have slots, and queued and running tasks hold them."""

from store.world import task

from stannel.store.pools import Pool


def test_an_empty_store_has_the_default_pool(world):
    assert [(one.name, one.slots, one.used) for one in world.store.pools.all()] == [("default_pool", 128, 0)]


def test_a_pool_is_made_changed_and_deleted(world):
    pools = world.store.pools
    pools.save("small", 2, "few", include_deferred=True)
    assert pools.all()[1] == Pool("small", 2, "few", True, 0)
    pools.save("small", -1)
    assert pools.all()[1] == Pool("small", -1)
    assert pools.delete("small")
    assert not pools.delete("small")


def test_slots_are_in_use_from_the_queue_to_the_end(world):
    world.store.pools.save("small", 5)
    world.dag(task("a", pool="small", pool_slots=2), task("b", pool="small"), "c")
    world.new_run()

    def used() -> dict[str, int]:
        return {one.name: one.used for one in world.store.pools.all()}

    assert used() == {"default_pool": 0, "small": 0}
    world.advance()
    assert used() == {"default_pool": 1, "small": 3}
    first = next(one for one in world.claim() if one.task_id == "a")
    assert used() == {"default_pool": 1, "small": 3}
    world.finish(first)
    assert used() == {"default_pool": 1, "small": 1}
