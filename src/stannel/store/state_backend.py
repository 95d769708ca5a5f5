"""State that somebody keeps elsewhere: a class named in the settings answers for the keys of tasks and assets."""

import importlib
import logging
from datetime import datetime
from typing import Any

from stannel.errors import SettingsError
from stannel.model.state_store import BaseStoreBackend, Change, StateRefused
from stannel.settings import Settings
from stannel.store.database import Database
from stannel.store.state_stores import Keeper, StateKeeping, StateStores, TaskKeeper

log = logging.getLogger(__name__)

_SETTING = "[state_store] backend"


def state_keeping(settings: Settings, database: Database) -> StateKeeping:
    """Whoever these settings say keeps state: the database, unless a backend is named."""
    path = settings.state_store.backend
    if not path:
        return StateStores(database)
    return BackendStates(load_backend(path), clears=settings.state_store.clear_on_success)


def load_backend(path: str) -> BaseStoreBackend:
    """An instance of the class with this dotted path."""
    module, _, name = path.rpartition(".")
    try:
        found: Any = getattr(importlib.import_module(module), name)
    # Whatever a module raises while it is imported, nothing can start without it.
    except Exception as error:
        reason = f"names {path!r}, which cannot be imported ({type(error).__name__}: {error})"
        raise SettingsError(_SETTING, None, None, reason) from error
    if not (isinstance(found, type) and issubclass(found, BaseStoreBackend)):
        raise TypeError(f"{_SETTING} names {path!r}, which is no subclass of BaseStoreBackend")
    backend: BaseStoreBackend = found()
    return backend


class BackendStates:
    """Passes everything on to a backend. It changes one key at a time, and cannot compare first."""

    def __init__(self, backend: BaseStoreBackend, *, clears: bool = False) -> None:
        self.backend, self._clears = backend, clears

    def get(self, keeper: Keeper, key: str, *, now: datetime) -> str | None:
        return self.backend.get(keeper.scope, key)

    def change(self, keeper: Keeper, change: Change, *, now: datetime) -> bool:
        if change.expect:
            name = type(self.backend).__name__
            raise StateRefused(f"{name} cannot compare a value before it changes it; nothing was stored.", status=501)
        for key, one in change.put.items():
            self.backend.set(keeper.scope, key, one.value, expires_at=one.expires_at)
        for key in change.remove:
            self.backend.delete(keeper.scope, key)
        return True

    def clear(self, keeper: Keeper) -> None:
        self.backend.clear(keeper.scope)

    def succeeded(self, keeper: TaskKeeper) -> None:
        if not self._clears:
            return
        try:
            self.backend.clear(keeper.scope)
        # The task has succeeded whatever a foreign class says to that.
        except Exception:
            log.exception("%s did not clear what %s kept", type(self.backend).__name__, keeper.scope)
