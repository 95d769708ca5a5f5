"""The engine's memory, and the only SQL."""

from stannel.store.store import Store, connect

__all__ = ["Store", "connect"]
