"""What only SQLite has: shared commits, a lock beside the file, a disk that may be full, writers that get killed."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from sqlalchemy import text
from store.children import PATIENCE, child, claim_everything, stop_half_way, write_many, write_until_killed
from store.world import World, open_store

from stannel.errors import DiskFull, StoreReadOnly


@pytest.fixture
def store(sqlite_store):
    return sqlite_store


def writer(store):
    return store.database._writer


def await_waiting(store, count: int) -> None:
    """Return once so many threads wait for their turn to write."""
    deadline = time.monotonic() + PATIENCE
    while store.database._waiting < count:
        assert time.monotonic() < deadline, "the threads never came"
        time.sleep(0.001)


def commits(store) -> list[str]:
    """A list that grows by one at each commit of this process."""
    seen: list[str] = []
    writer(store).set_trace_callback(lambda sql: seen.append(sql) if sql == "COMMIT" else None)
    return seen


def test_threads_that_come_at_once_share_one_commit_and_return_after_it(store):
    seen = commits(store)

    def save(number: int) -> str:
        store.variables.save(str(number), "x")
        # Other connections see what is committed and nothing else.
        return store.variables.get(str(number)).value

    with ThreadPoolExecutor(20) as threads:
        with store.transaction():
            saved = [threads.submit(save, number) for number in range(20)]
            await_waiting(store, 20)
            assert seen == []
        assert [one.result() for one in saved] == ["x"] * 20
    assert len(seen) == 1


def test_one_that_fails_undoes_its_own_work_and_nobody_elses(store):
    def save(number: int) -> None:
        with store.transaction() as tx:
            tx.run(text("INSERT INTO variable (key, value) VALUES (:key, 'x')"), key=str(number))
            if number % 3 == 0:
                raise ZeroDivisionError

    with ThreadPoolExecutor(12) as threads:
        with store.transaction():
            saved = [threads.submit(save, number) for number in range(12)]
            await_waiting(store, 12)
        failed = [number for number, one in enumerate(saved) if one.exception()]
    assert failed == [0, 3, 6, 9]
    assert sorted(map(int, store.variables.keys())) == [1, 2, 4, 5, 7, 8, 10, 11]


def test_a_group_is_committed_before_it_grows_too_large(store):
    seen = commits(store)
    with ThreadPoolExecutor(100) as threads:
        with store.transaction():
            saved = [threads.submit(store.variables.save, str(number), "x") for number in range(100)]
            await_waiting(store, 100)
        for one in saved:
            one.result()
    assert len(seen) == 2


def test_a_reader_neither_waits_for_a_writer_nor_sees_its_unfinished_work(store):
    with store.transaction() as tx:
        tx.run(text("UPDATE pool SET slots = 1"))
        assert store.pools.all()[0].slots == 128
    assert store.pools.all()[0].slots == 1


def test_a_reader_sees_one_moment_however_long_it_reads(store):
    with store.read() as tx:
        before = tx.all(text("SELECT slots FROM pool"))
        store.pools.save("default_pool", 1)
        assert tx.all(text("SELECT slots FROM pool")) == before


def test_a_reader_cannot_write(store):
    with pytest.raises(StoreReadOnly), store.read() as tx:
        tx.run(text("UPDATE pool SET slots = 1"))
    assert store.pools.all()[0].slots == 128


def test_processes_that_write_at_once_never_meet_busy(sqlite_address):
    store = open_store(sqlite_address)
    with (
        child(write_many, sqlite_address, "one", 60) as one,
        child(write_many, sqlite_address, "two", 60) as two,
        ThreadPoolExecutor(3) as threads,
    ):
        assert [one.hear(), two.hear()] == ["ready", "ready"]
        one.tell()
        two.tell()
        saved = [threads.submit(store.variables.save, f"mine-{number}", "x") for number in range(60)]
        assert [one.hear(), two.hear()] == [None, None]
        for each in saved:
            each.result()
    assert store.pools.all()[0].slots == 128 + 120
    assert len(store.variables.keys()) == 180
    store.close()


def test_processes_never_claim_the_same_attempt(sqlite_address):
    world = World(open_store(sqlite_address))
    world.dag(*(f"t{number}" for number in range(30)))
    world.new_run()
    world.advance()
    with child(claim_everything, sqlite_address, "one") as one, child(claim_everything, sqlite_address, "two") as two:
        assert [one.hear(), two.hear()] == ["ready", "ready"]
        one.tell()
        two.tell()
        claimed = one.hear() + two.hear()
    assert len(claimed) == len(set(claimed)) == 30
    assert world.store.upkeep.check() == []
    world.store.close()


def test_a_full_disk_is_said_clearly_and_the_store_goes_on_when_there_is_room(store):
    world = World(store)
    world.dag("a")
    world.new_run()
    pages = writer(store).execute("PRAGMA page_count").fetchone()[0]
    writer(store).execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(DiskFull, match="no space left"):
        store.variables.save("large", "x" * 100_000)
    assert store.variables.keys() == []
    assert world.states() == {"a": "none"}
    store.variables.save("small", "x")
    writer(store).execute("PRAGMA max_page_count = 1000000")
    store.variables.save("large", "x" * 100_000)
    assert store.variables.keys() == ["large", "small"]


def test_whoever_shares_a_commit_with_a_full_disk_is_told_or_stored(store):
    pages = writer(store).execute("PRAGMA page_count").fetchone()[0]
    writer(store).execute(f"PRAGMA max_page_count = {pages + 2}")
    sizes = {str(number): 100_000 if number % 2 else 10 for number in range(6)}
    with ThreadPoolExecutor(6) as threads:
        with suppress(DiskFull), store.transaction():
            saved = {key: threads.submit(store.variables.save, key, "x" * size) for key, size in sizes.items()}
            await_waiting(store, 6)
        errors = {key: one.exception() for key, one in saved.items()}
    assert {type(error) for error in errors.values()} <= {DiskFull, type(None)}
    stored = {key for key, error in errors.items() if error is None}
    assert set(store.variables.keys()) == stored
    assert stored <= {"0", "2", "4"}


def test_a_database_that_cannot_be_written_says_so_and_can_be_read(store):
    writer(store).execute("PRAGMA query_only = ON")
    with pytest.raises(StoreReadOnly, match="read-only"):
        store.variables.save("k", "x")
    assert store.pools.all()[0].slots == 128
    writer(store).execute("PRAGMA query_only = OFF")
    store.variables.save("k", "x")
    assert store.variables.keys() == ["k"]


def test_killed_in_the_middle_nothing_is_half_written_and_nobody_waits(sqlite_address):
    store = open_store(sqlite_address)
    with child(stop_half_way, sqlite_address) as other:
        assert other.hear() == "half"
        thread = threading.Thread(target=store.variables.save, args=("k", "x"))
        thread.start()
        other.kill()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert store.pools.all()[0].slots == 128
    assert store.variables.keys() == ["k"]
    store.close()


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_moment_what_was_confirmed_is_there_and_pairs_stay_together(sqlite_address, seed):
    chance = random.Random(seed)
    with child(write_until_killed, sqlite_address) as other:
        confirmed = 0
        for _ in range(chance.randint(5, 60)):
            confirmed = other.hear()
        other.kill()
    store = open_store(sqlite_address)
    lefts = {int(key.split("-")[1]) for key in store.variables.keys("left")}
    rights = {int(key.split("-")[1]) for key in store.variables.keys("right")}
    assert lefts == rights
    assert lefts == set(range(1, len(lefts) + 1))
    assert len(lefts) >= confirmed
    store.close()
