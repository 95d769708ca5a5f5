"""A wake-up comes after the commit, to every listener of its topic, in this process and in others."""

import os
import resource
import select
import threading

import pytest
from sqlalchemy import text
from store.children import PATIENCE, child, listen

from stannel.store.database import SCHEDULER, WORKER
from stannel.store.signals import SignalFolder, wait


@pytest.fixture
def listener(store):
    one = store.listen(SCHEDULER)
    yield one
    one.close()


def poke(store, topic: str = SCHEDULER) -> None:
    with store.transaction() as tx:
        tx.wake(topic)


def test_a_commit_wakes_whoever_waits(store, listener):
    thread = threading.Thread(target=poke, args=(store,))
    thread.start()
    assert wait(listener, PATIENCE)
    thread.join()
    assert not wait(listener, 0), "a wake-up is told once"


def test_a_wake_up_that_came_before_the_wait_is_not_missed(store, listener):
    poke(store)
    poke(store)
    assert wait(listener, PATIENCE)


def test_what_is_told_is_stored_already(store, listener):
    with store.transaction() as tx:
        tx.run(text("UPDATE pool SET slots = 7"))
        tx.wake(SCHEDULER)
        assert not wait(listener, 0), "nobody is woken before the commit"
    assert wait(listener, PATIENCE)
    assert store.pools.all()[0].slots == 7


def test_a_transaction_that_fails_wakes_nobody(store, listener):
    def fail() -> None:
        with store.transaction() as tx:
            tx.wake(SCHEDULER)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not wait(listener, 0.05)


def test_only_the_topics_asked_for_are_heard(store, listener):
    both = store.listen(SCHEDULER, WORKER)
    poke(store, WORKER)
    assert wait(both, PATIENCE)
    assert not wait(listener, 0.05)
    both.close()


def test_every_listener_of_a_topic_is_woken(store, listener):
    other = store.listen(SCHEDULER)
    poke(store)
    assert wait(listener, PATIENCE)
    assert wait(other, PATIENCE)
    other.close()


def test_anybody_can_be_woken_without_a_change(store, listener):
    store.database.wake(SCHEDULER)
    assert wait(listener, PATIENCE)


def test_other_processes_are_woken(store):
    with child(listen, store.address, SCHEDULER) as other:
        assert other.hear() != os.getpid()
        poke(store)
        assert other.hear() is True


def test_a_listener_can_be_watched_by_any_loop(store, listener):
    assert select.select([listener], [], [], 0)[0] == []
    poke(store)
    assert select.select([listener], [], [], PATIENCE)[0] == [listener]
    assert listener.drain()
    assert select.select([listener], [], [], 0)[0] == []


def test_a_listener_that_died_leaves_nothing_behind(tmp_path):
    folder = SignalFolder(tmp_path / "signals")
    dead = folder.listen("t")
    dead._socket.close()  # as if its process had been killed: the name stays, nobody is behind it
    assert len(list(folder.path.iterdir())) == 1
    folder.wake({"t"})
    assert list(folder.path.iterdir()) == []
    folder.close()


def test_a_listener_that_never_looks_holds_up_nobody(tmp_path):
    folder = SignalFolder(tmp_path / "signals")
    lazy = folder.listen("t")
    for _ in range(5000):
        folder.wake({"t"})
    assert lazy.drain()
    lazy.close()
    folder.close()


def test_a_very_long_path_is_no_obstacle(tmp_path):
    folder = SignalFolder(tmp_path / ("x" * 120) / "signals")
    listener = folder.listen("t")
    folder.wake({"t"})
    assert wait(listener, PATIENCE)
    listener.close()
    folder.close()


@pytest.fixture
def descriptors_run_high():
    """Every descriptor that is opened from now on has a number above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while taken[-1] < 1023:
        taken.append(os.dup(taken[0]))
    yield
    for descriptor in taken:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_with_thousands_of_files_is_woken_too(store, descriptors_run_high):
    listener = store.listen(SCHEDULER)
    assert listener.fileno() > 1023
    assert not wait(listener, 0)
    poke(store)
    assert wait(listener, PATIENCE)
    listener.close()


def test_a_wait_may_be_longer_than_the_system_can_count(store, listener):
    thread = threading.Thread(target=poke, args=(store,))
    assert not listener.drain()
    thread.start()
    assert wait(listener, 1e12)
    thread.join()
