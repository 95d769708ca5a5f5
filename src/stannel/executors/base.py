"""The contract of an executor: it brings workers to life; attempts reach them through the store."""

from typing import TYPE_CHECKING, Protocol

# Workers start while the store is still being imported.
if TYPE_CHECKING:
    from stannel.store import Store


class Executor(Protocol):
    """Something that runs the attempts which schedulers queue.

    Workers claim queued attempts in the store, so an executor is told nothing about single attempts: it starts workers,
    keeps them alive, and stops them.
    """

    def start(self) -> None:
        """Bring up workers; returns before they are ready. They open the store themselves."""
        ...

    def watch(self, store: "Store") -> None:
        """From now on, replace workers that die, and tell the store of their death."""
        ...

    def stop(self, *, patience: float) -> None:
        """Take nothing new, give running attempts `patience` seconds to end, then stop them; returns when done."""
        ...

    def stop_now(self) -> None:
        """Stop running attempts as well; may be called while `stop` waits for them."""
        ...

    @property
    def running(self) -> int:
        """How many attempts run now, as far as is known."""
        ...
