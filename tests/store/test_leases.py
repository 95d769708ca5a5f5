"""A lease is taken, renewed, runs out, is ended by others, or given back."""

from store.world import NOW, after


def leases(world):
    return {one.owner: one for one in world.store.leases.all()}


def test_a_lease_lives_until_it_runs_out(world):
    world.lease("w", seconds=3)
    lease = leases(world)["w"]
    assert (lease.kind, lease.hostname, lease.pid, lease.started_at, lease.detail) == ("worker", "host", 1, NOW, {})
    assert lease.is_live(after(2.9))
    assert not lease.is_live(after(3))


def test_a_renewed_lease_lives_on_and_tells_how_its_holder_is(world):
    world.lease("w", seconds=3)
    assert world.store.leases.renew("w", now=after(2), seconds=3, detail={"running": 5})
    lease = leases(world)["w"]
    assert (lease.started_at, lease.renewed_at, lease.expires_at) == (NOW, after(2), after(5))
    assert lease.detail == {"running": 5}


def test_a_lease_that_ran_out_unnoticed_can_be_renewed(world):
    world.lease("w", seconds=3)
    assert world.store.leases.renew("w", now=after(100), seconds=3)
    assert leases(world)["w"].is_live(after(102))


def test_a_holder_declared_dead_cannot_renew(world):
    world.lease("w")
    world.store.leases.end("w")
    assert not leases(world)["w"].is_live(NOW)
    assert not world.store.leases.renew("w", now=NOW, seconds=3)


def test_a_lease_given_back_is_gone(world):
    world.lease("w")
    world.store.leases.release("w")
    assert leases(world) == {}
    assert not world.store.leases.renew("w", now=NOW, seconds=3)


def test_the_same_owner_may_take_it_anew(world):
    world.lease("w")
    world.store.leases.end("w")
    world.lease("w", at=after(5), seconds=3)
    assert leases(world)["w"].started_at == after(5)
    assert leases(world)["w"].is_live(after(6))


def test_leases_of_the_long_dead_are_forgotten(world):
    world.lease("old", seconds=3)
    world.lease("new", at=after(3700))
    assert set(leases(world)) == {"new"}


def test_a_lease_that_only_just_ran_out_is_still_shown(world):
    world.lease("late", seconds=3)
    world.lease("new", at=after(60))
    assert set(leases(world)) == {"late", "new"}
