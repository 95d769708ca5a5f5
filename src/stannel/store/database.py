"""What every kind of database offers the verbs: transactions, reads and wake-ups."""

from contextlib import AbstractContextManager
from typing import Protocol

from sqlalchemy.engine import Dialect

from stannel.store.signals import Listener
from stannel.store.sql import Tx

# Something changed that a scheduler should look at; an attempt waits for a worker; a trigger was stored or is to be
# stopped; a run ended.
SCHEDULER, WORKER, TRIGGERER, RUN_ENDED = "scheduler", "worker", "triggerer", "run-ended"


class Database(Protocol):
    """One page of contract; `sqlite` and `postgres` are its two forms, and pass the same tests."""

    address: str

    @property
    def dialect(self) -> Dialect: ...

    def transaction(self) -> AbstractContextManager[Tx]:
        """All or nothing; returns only after the commit."""
        ...

    def read(self) -> AbstractContextManager[Tx]:
        """What is committed, without waiting for writers."""
        ...

    def listen(self, *topics: str) -> Listener: ...
    def wake(self, *topics: str) -> None: ...
    def close(self) -> None: ...
