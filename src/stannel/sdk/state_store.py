"""State stores as task code uses them: keys that outlive a try.

`context["task_state_store"]` belongs to the task instance: its retries see what it kept, other instances do not.
"""

import importlib
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from stannel.model.state_store import (
    REFERENCE,
    AssetScope,
    BaseStoreBackend,
    StateRefused,
    TaskScope,
    check_key,
    check_size,
)
from stannel.protocol.errors import NotJson
from stannel.protocol.replies import ErrorResponse
from stannel.protocol.requests import (
    ChangeStateStore,
    ClearTaskStateStore,
    DeleteTaskStateStore,
    GetTaskStateStore,
    Request,
    SetTaskStateStore,
)
from stannel.protocol.schema import ErrorCode, ensure_json
from stannel.sdk import comms
from stannel.sdk.environment import setting
from stannel.sdk.log import TASK_LOGGER

_log = logging.getLogger(TASK_LOGGER)

T = TypeVar("T")

NEVER_EXPIRE = timedelta.max
_MISSING = (ErrorCode.TASK_STORE_NOT_FOUND, ErrorCode.ASSET_STORE_NOT_FOUND)


def checked_value(key: str, value: Any) -> bytes:
    """The value as JSON, if it would come back as it is; otherwise a ValueError that says what is in the way."""
    if value is None:
        raise ValueError(f"{key!r} cannot be set to None, which stands for a key that is not there; use delete()")
    try:
        kept = ensure_json(value)
        text = msgspec.json.encode(kept)
    except (NotJson, RecursionError, UnicodeEncodeError) as error:
        raise ValueError(f"{key!r} cannot be set: {error}") from error
    if kept is not value and kept != value:
        raise ValueError(f"{key!r} cannot be set: it is no plain JSON; use lists for tuples and text for moments")
    return text


def expiry(retention: Any, now: datetime) -> datetime | None:
    """The moment at which a key expires that is written now. None: never."""
    if retention is None:
        days = int(setting("STATE_STORE__DEFAULT_RETENTION_DAYS", "30"))
        if days < 0:
            raise ValueError(f"[state_store] default_retention_days must not be negative, but it is {days}")
        return now + timedelta(days=days) if days else None
    if not isinstance(retention, timedelta):
        raise TypeError(f"retention is a timedelta or NEVER_EXPIRE, not {retention!r}")
    if retention == NEVER_EXPIRE:
        return None
    if retention <= timedelta(0):
        raise ValueError(f"retention must be longer than nothing, but it is {retention}")
    try:
        return now + retention
    except OverflowError as error:
        raise ValueError(f"retention {retention} ends after the year 9999; use NEVER_EXPIRE") from error


def _check_size(key: str, text: bytes) -> None:
    try:
        check_size(key, text, int(setting("STATE_STORE__MAX_VALUE_STORAGE_BYTES", "0")))
    except StateRefused as error:
        raise ValueError(str(error)) from error


class KeyStore:
    """What the stores of tasks and of assets have in common: how to ask, and the twins for async code."""

    def __init__(self, scope: TaskScope | AssetScope) -> None:
        self._scope = scope

    # --- each kind says it in its own messages -----------------------------------------------------------------------

    def _get_request(self, key: str) -> Request:
        raise NotImplementedError

    def _delete_request(self, key: str) -> Request:
        raise NotImplementedError

    def _clear_request(self) -> Request:
        raise NotImplementedError

    def _change_request(self, **changes: Any) -> ChangeStateStore:
        raise NotImplementedError

    # --- one key -----------------------------------------------------------------------------------------------------

    def get(self, key: str, default: Any = None) -> Any:
        """The value of the key; `default` if there is none, or it has expired."""
        request = self._get_request(check_key(key))
        channel = comms.current_channel()
        answer = comms.ask(request) if channel is None else channel.request(request)
        if isinstance(answer, ErrorResponse):
            if answer.error in _MISSING:
                return default
            raise comms.refusal(request, answer)
        return self._opened(key, getattr(answer, "value", None))

    def delete(self, key: str) -> None:
        """Forget the key; nothing happens if there is none."""
        comms.ask(self._delete_request(check_key(key)))
        if (backend := worker_backend()) is not None:
            backend.delete(self._scope, key)

    def clear(self) -> None:
        """Forget every key of this store."""
        comms.ask(self._clear_request())
        if (backend := worker_backend()) is not None:
            backend.clear(self._scope)

    # --- several keys ------------------------------------------------------------------------------------------------

    def _change(
        self,
        values: Mapping[str, Any],
        remove: Iterable[str],
        expect: Mapping[str, Any],
        expires_at: datetime | None,
    ) -> bool:
        removed = [check_key(key) for key in remove]
        for key, value in expect.items():
            check_key(key)
            if value is not None:
                checked_value(key, value)
        if both := values.keys() & set(removed):
            raise ValueError(f"{min(both)!r} cannot be both set and removed")
        backend = worker_backend()
        if backend is not None and expect:
            raise ValueError(f"{type(backend).__name__} keeps the values, so the engine cannot compare them")
        for key, value in values.items():
            checked_value(check_key(key), value)
        put = {key: self._stored(key, value) for key, value in values.items()}
        expiries = {} if expires_at is None else dict.fromkeys(put, expires_at)
        request = self._change_request(put=put, remove=removed, expect=dict(expect), expires_at=expiries)
        is_done = bool(comms.ask(request).ok)
        if backend is not None:
            for key in removed:
                backend.delete(self._scope, key)
        return is_done

    # --- values that a worker's own backend keeps --------------------------------------------------------------------

    def _stored(self, key: str, value: Any) -> Any:
        """What the engine is given for a value: the value itself, or where the worker's backend has put it."""
        text, backend, scope = checked_value(key, value), worker_backend(), self._scope
        if backend is None:
            _check_size(key, text)
            return value
        if isinstance(scope, TaskScope):
            place = backend.serialize_task_state_store_to_ref(value=value, key=key, scope=scope)
        else:
            place = backend.serialize_asset_state_store_to_ref(value=value, key=key, scope=scope)
        return {REFERENCE: place}

    def _opened(self, key: str, stored: Any) -> Any:
        backend = worker_backend()
        if backend is None:
            return stored
        if not isinstance(stored, dict) or stored.keys() != {REFERENCE}:
            _log.warning("%r was not stored by %s; it is given as it is", key, type(backend).__name__)
            return stored
        if isinstance(self._scope, TaskScope):
            return backend.deserialize_task_state_store_from_ref(stored[REFERENCE])
        return backend.deserialize_asset_state_store_from_ref(stored[REFERENCE])

    # --- for async code ----------------------------------------------------------------------------------------------

    async def aget(self, key: str, default: Any = None) -> Any:
        return await beside(self.get, key, default)

    async def adelete(self, key: str) -> None:
        await beside(self.delete, key)

    async def aclear(self) -> None:
        await beside(self.clear)


class TaskStateStore(KeyStore):
    """The keys of one task instance: every try of it sees them, and nobody else."""

    def __init__(self, ti_id: str, scope: TaskScope) -> None:
        super().__init__(scope)
        self._ti_id = ti_id

    def set(self, key: str, value: Any, *, retention: timedelta | None = None) -> None:
        """Keep a JSON value, for as long as `retention` says; without it, as long as the settings say."""
        expires_at = expiry(retention, datetime.now(UTC))
        stored = self._stored(check_key(key), value)
        comms.ask(SetTaskStateStore(ti_id=self._ti_id, key=key, value=stored, expires_at=expires_at))

    def update(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        remove: Iterable[str] = (),
        expect: Mapping[str, Any] | None = None,
        retention: timedelta | None = None,
    ) -> bool:
        """Set and remove several keys in one transaction. False: something is not as expected, nothing was done.

        `expect` holds the values that keys must have; None means that there must be no such key.
        """
        return self._change(values or {}, remove, expect or {}, expiry(retention, datetime.now(UTC)))

    def compare_and_set(self, key: str, expected: Any, value: Any, *, retention: timedelta | None = None) -> bool:
        """Set the key if it has the expected value; None: if there is no such key. False: it was left alone."""
        return self.update({key: value}, expect={key: expected}, retention=retention)

    async def aset(self, key: str, value: Any, *, retention: timedelta | None = None) -> None:
        await beside(self.set, key, value, retention=retention)

    async def aupdate(self, values: Mapping[str, Any] | None = None, **options: Any) -> bool:
        return await beside(self.update, values, **options)

    async def acompare_and_set(self, key: str, expected: Any, value: Any, **options: Any) -> bool:
        return await beside(self.compare_and_set, key, expected, value, **options)

    def _get_request(self, key: str) -> Request:
        return GetTaskStateStore(self._ti_id, key)

    def _delete_request(self, key: str) -> Request:
        return DeleteTaskStateStore(self._ti_id, key)

    def _clear_request(self) -> Request:
        return ClearTaskStateStore(self._ti_id)

    def _change_request(self, **changes: Any) -> ChangeStateStore:
        return ChangeStateStore(ti_id=self._ti_id, **changes)


_backends: dict[str, BaseStoreBackend] = {}


def worker_backend() -> BaseStoreBackend | None:
    """What keeps values where tasks run. None: the engine does."""
    path = setting("WORKERS__STATE_STORE_BACKEND", "")
    if not path:
        return None
    if path not in _backends:
        module, _, name = path.rpartition(".")
        found: Any = getattr(importlib.import_module(module), name)
        if not (isinstance(found, type) and issubclass(found, BaseStoreBackend)):
            raise TypeError(f"[workers] state_store_backend names {path!r}, which is no subclass of BaseStoreBackend")
        _backends[path] = found()
    return _backends[path]


async def beside(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Ask without holding up the other coroutines."""
    # Whoever awaits has loaded it already; tasks that do not wait never need it.
    asyncio = importlib.import_module("asyncio")
    result: T = await asyncio.to_thread(function, *args, **kwargs)
    return result
