"""A lease is renewed while there is progress, and its loss is told."""

import queue
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from stannel.errors import StoreUnavailable
from stannel.store import Store
from stannel.triggerer.lease import Beat, Lease

PATIENCE = 20.0


class Holder:
    """Hears what a lease has to say."""

    def __init__(self, store: Store, *, answers: bool = True, patience: float = 60.0) -> None:
        self.beats: queue.Queue[Beat] = queue.Queue()
        self.lost: queue.Queue[str] = queue.Queue()
        self.pinged = threading.Event()
        self.answers = answers
        self.lease = Lease(
            store,
            "triggerer-1",
            heartbeat=0.05,
            patience=patience,
            hostname="here",
            clock=lambda: datetime.now(UTC),
            detail=lambda: {"running": 3},
            ping=self.ping,
            on_beat=self.beats.put,
            on_lost=self.lost.put,
        )

    def ping(self) -> None:
        self.pinged.set()
        if self.answers:
            self.lease.pong()

    def start(self) -> None:
        self.lease.take()
        self.lease.start()


def test_a_lease_tells_what_its_holder_does(sqlite_store: Store) -> None:
    holder = Holder(sqlite_store)
    holder.start()
    assert not holder.beats.get(timeout=PATIENCE).was_stalled
    [found] = sqlite_store.leases.all()
    assert (found.kind, found.hostname, found.detail) == ("triggerer", "here", {"running": 3})
    holder.lease.stop()
    assert not holder.lease.is_alive()


def test_a_lease_that_was_ended_is_lost(sqlite_store: Store) -> None:
    holder = Holder(sqlite_store)
    holder.start()
    holder.beats.get(timeout=PATIENCE)
    sqlite_store.leases.end("triggerer-1")
    assert "others took the triggers over" in holder.lost.get(timeout=PATIENCE)
    holder.lease.join(PATIENCE)
    assert not holder.lease.is_alive()


def test_without_progress_it_is_not_renewed(sqlite_store: Store) -> None:
    holder = Holder(sqlite_store, answers=False, patience=0.0)
    holder.start()
    for _ in range(5):
        holder.pinged.clear()
        assert holder.pinged.wait(PATIENCE)
    assert holder.beats.empty()
    # And again as soon as the loop turns.
    holder.answers, holder.lease._patience = True, 60.0
    holder.beats.get(timeout=PATIENCE)
    holder.lease.stop()


def test_a_slow_store_is_not_taken_for_a_loop_that_stands_still(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    renew = sqlite_store.leases.renew
    holder = Holder(sqlite_store, patience=0.01)

    def slowly(*args: Any, **kwargs: Any) -> bool:
        # Longer than the loop may take to answer; it answered long ago.
        holder.lease._stopping.wait(0.05)
        return renew(*args, **kwargs)

    monkeypatch.setattr(sqlite_store.leases, "renew", slowly)
    holder.start()
    for _ in range(3):
        holder.beats.get(timeout=PATIENCE)
    holder.lease.stop()
    assert "no progress" not in caplog.text


def test_a_renewal_that_came_too_late_says_so(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = Holder(sqlite_store)
    renew, failures = sqlite_store.leases.renew, []

    def away_for_a_while(*args: Any, **kwargs: Any) -> bool:
        if len(failures) < 5:
            failures.append(1)
            raise StoreUnavailable("sqlite:///x", "it is restarted")
        return renew(*args, **kwargs)

    monkeypatch.setattr(sqlite_store.leases, "renew", away_for_a_while)
    holder.start()
    assert holder.beats.get(timeout=PATIENCE).was_stalled
    assert not holder.beats.get(timeout=PATIENCE).was_stalled
    holder.lease.stop()
