"""What other processes do in these tests: forked from a small server, each shares nothing with pytest."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from sqlalchemy import text
from store.world import NOW, open_store

from stannel.store.signals import wait

PATIENCE = 60.0

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["store.children", "stannel.store.postgres"])


@contextmanager
def child(work: Callable[..., None], *args: Any) -> Iterator["Child"]:
    """Another process that does `work(line, *args)`; it is gone at the end."""
    ours, theirs = _context.Pipe()
    process = _context.Process(target=work, args=(theirs, *args), daemon=True)
    process.start()
    theirs.close()
    one = Child(process, ours)
    try:
        yield one
    finally:
        ours.close()
        process.kill()
        process.join(PATIENCE)
        process.close()


class Child:
    """A process and the line to it."""

    def __init__(self, process: Any, line: Connection) -> None:
        self.process, self._line = process, line

    def hear(self) -> Any:
        """What it says next."""
        assert self._line.poll(PATIENCE), "the child said nothing"
        return self._line.recv()

    def tell(self, message: Any = "go") -> None:
        self._line.send(message)

    def kill(self) -> None:
        self.process.kill()
        self.process.join(PATIENCE)


def claim_everything(line: Connection, address: str, owner: str) -> None:
    """Claim until nothing is left; say which attempts."""
    store = open_store(address)
    line.send("ready")
    line.recv()
    mine: list[str] = []
    while claimed := store.attempts.claim(owner, most=2, hostname="h", now=NOW):
        mine += [one.attempt_id for one in claimed]
    line.send(mine)


def write_many(line: Connection, address: str, name: str, count: int) -> None:
    """Write small transactions as fast as possible; say what went wrong, if anything did."""
    store = open_store(address)
    line.send("ready")
    line.recv()
    try:
        for number in range(count):
            with store.transaction() as tx:
                tx.run(text("UPDATE pool SET slots = slots + 1 WHERE name = 'default_pool'"))
            store.variables.save(f"{name}-{number}", "x")
            store.pools.all()
    except Exception as error:  # noqa: BLE001 - whatever it is, the test wants to see it
        line.send(repr(error))
    else:
        line.send(None)


def stop_half_way(line: Connection, address: str) -> None:
    """Write half of something and never commit it."""
    store = open_store(address)
    with store.transaction() as tx:
        tx.run(text("UPDATE pool SET slots = 1"))
        line.send("half")
        line.recv()


def write_until_killed(line: Connection, address: str) -> None:
    """Write pairs of rows, each pair in one transaction, and say after each commit how many there are."""
    store = open_store(address)
    number = 0
    while True:
        number += 1
        with store.transaction() as tx:
            for half in ("left", "right"):
                tx.run(
                    text("INSERT INTO variable (key, value) VALUES (:key, 'x')"),
                    key=f"{half}-{number}",
                )
        line.send(number)


def open_empty(line: Connection, address: str) -> None:
    """Open a store whose database may not have tables yet; say what the default pool looks like."""
    line.send("ready")
    line.recv()
    try:
        store = open_store(address)
        line.send([one.name for one in store.pools.all()])
    except Exception as error:  # noqa: BLE001 - whatever it is, the test wants to see it
        line.send(repr(error))


def listen(line: Connection, address: str, topic: str) -> None:
    """Wait for one wake-up and say whether it came."""
    store = open_store(address)
    listener = store.listen(topic)
    line.send(os.getpid())
    line.send(wait(listener, PATIENCE))
