"""State stores: what may be kept in them, whose it is, and the contract of a store that is kept elsewhere."""

from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from stannel.errors import StannelError
from stannel.model.ids import UNMAPPED

LONGEST_KEY = 512
# A value that lies elsewhere: what is stored instead is the place, as a worker's own backend named it.
REFERENCE = "__airflow_state_ref__"


class TaskScope(Struct, frozen=True):
    """The keys of one task instance, in all its tries."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = UNMAPPED


class AssetScope(Struct, frozen=True):
    """The keys of one asset. The engine knows its number, task code its name or URI; at least one is given."""

    asset_id: int | None = None
    name: str | None = None
    uri: str | None = None

    def __post_init__(self) -> None:
        if self.asset_id is None and self.name is None and self.uri is None:
            raise ValueError("an AssetScope needs an asset_id, a name or a uri")


StoreScope: TypeAlias = TaskScope | AssetScope


class Put(Struct, frozen=True):
    """A value to be stored, as JSON text."""

    value: str
    expires_at: datetime | None = None


class Change(Struct, frozen=True, kw_only=True):
    """Changes to several keys, made together. A key expected as None must not be there."""

    put: dict[str, Put] = {}
    remove: tuple[str, ...] = ()
    expect: dict[str, Any] = {}

    @property
    def keys(self) -> list[str]:
        return sorted({*self.put, *self.remove, *self.expect})


class StateRefused(StannelError):
    """Something cannot be kept in a state store; nothing was written. `status` is what a web client would be told."""

    def __init__(self, reason: str, status: int = 422) -> None:
        super().__init__(reason)
        self.reason, self.status = reason, status


def check_key(key: Any) -> str:
    """The key, if it is one."""
    if not isinstance(key, str):
        raise TypeError(f"the key of a state store is a text, not {key!r}")
    if not 1 <= len(key) <= LONGEST_KEY:
        raise ValueError(f"the key of a state store has 1 to {LONGEST_KEY} characters, this one has {len(key)}")
    if "\0" in key or (not key.isascii() and _has_surrogates(key)):
        raise ValueError(f"the key {key!r} holds a character that cannot be stored")
    return str.__str__(key)


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def check_size(key: str, text: bytes | str, most: int) -> None:
    """Refuse a value whose JSON text is longer than allowed; 0 allows any."""
    size = len(text if isinstance(text, bytes) else text.encode())
    if most and size > most:
        raise StateRefused(
            f"The value of {key!r} takes {size:,} bytes, more than {most:,}. Nothing was stored. Keep where the data "
            "is, not the data, or raise [state_store] max_value_storage_bytes."
        )


def same_value(text: str, expected: Any) -> bool:
    """Whether a stored JSON text means this value; an integer is not its float, nor True 1."""
    return bool(msgspec.json.encode(msgspec.json.decode(text), order="sorted") == _canonical(expected))


def _canonical(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


class BaseStoreBackend(ABC):
    """Keeps state outside the database. Values are JSON texts; `get` of an expired key is None, as of a missing one.

    For `[state_store] backend` the first eight methods are called where the engine runs. For
    `[workers] state_store_backend` the others are called in the task's process: the database keeps what they return.
    """

    @abstractmethod
    def get(self, scope: StoreScope, key: str, *, session: Any = None) -> str | None: ...

    @abstractmethod
    def set(
        self, scope: StoreScope, key: str, value: str, *, expires_at: datetime | None = None, session: Any = None
    ) -> None: ...

    @abstractmethod
    def delete(self, scope: StoreScope, key: str, *, session: Any = None) -> None: ...

    @abstractmethod
    def clear(self, scope: StoreScope, *, all_map_indices: bool = False, session: Any = None) -> None: ...

    @abstractmethod
    async def aget(self, scope: StoreScope, key: str, *, session: Any = None) -> str | None: ...

    @abstractmethod
    async def aset(
        self, scope: StoreScope, key: str, value: str, *, expires_at: datetime | None = None, session: Any = None
    ) -> None: ...

    @abstractmethod
    async def adelete(self, scope: StoreScope, key: str, *, session: Any = None) -> None: ...

    @abstractmethod
    async def aclear(self, scope: StoreScope, *, all_map_indices: bool = False, session: Any = None) -> None: ...

    def cleanup(self) -> None:  # noqa: B027 - a hook
        """Forget what has expired."""

    def serialize_task_state_store_to_ref(self, *, value: Any, key: str, scope: TaskScope) -> str:
        """Keep the value and name its place; the same scope and key always have the same place."""
        return msgspec.json.encode(value).decode()

    def deserialize_task_state_store_from_ref(self, stored: str) -> Any:
        """The value at this place."""
        return msgspec.json.decode(stored)

    def serialize_asset_state_store_to_ref(self, *, value: Any, key: str, scope: AssetScope) -> str:
        """Keep the value and name its place; the same scope and key always have the same place."""
        return msgspec.json.encode(value).decode()

    def deserialize_asset_state_store_from_ref(self, stored: str) -> Any:
        """The value at this place."""
        return msgspec.json.decode(stored)
