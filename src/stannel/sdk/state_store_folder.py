"""State kept as files in a folder that all machines share: for values too large for the database, and as an example.

Named in `[workers] state_store_backend`, tasks write the values and the engine keeps only where they are; named in
`[state_store] backend`, the engine writes them. The folder is that of the variable STANNEL_STATE_FOLDER.
"""

import contextlib
import importlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from stannel.model.ids import new_id
from stannel.model.state_store import AssetScope, BaseStoreBackend, StoreScope, TaskScope

FOLDER_VARIABLE = "STANNEL_STATE_FOLDER"


class _Kept(msgspec.Struct):
    """The content of a file."""

    value: msgspec.Raw
    expires_at: datetime | None = None


_decode = msgspec.json.Decoder(_Kept).decode


class FolderStoreBackend(BaseStoreBackend):
    """One file for each key; a reader sees the old value or the new one, never a part."""

    def __init__(self) -> None:
        folder = os.environ.get(FOLDER_VARIABLE)
        if not folder:
            raise ValueError(f"FolderStoreBackend needs a folder; name it in {FOLDER_VARIABLE}")
        self._folder = Path(folder)

    def get(self, scope: StoreScope, key: str, *, session: Any = None) -> str | None:
        return self._read(self._place(scope) / _quoted(key))

    def set(
        self, scope: StoreScope, key: str, value: str, *, expires_at: datetime | None = None, session: Any = None
    ) -> None:
        self._write(self._place(scope) / _quoted(key), value, expires_at)

    def delete(self, scope: StoreScope, key: str, *, session: Any = None) -> None:
        (self._place(scope) / _quoted(key)).unlink(missing_ok=True)

    def clear(self, scope: StoreScope, *, all_map_indices: bool = False, session: Any = None) -> None:
        place = self._place(scope)
        for file in _files(place.parent if all_map_indices else place):
            file.unlink(missing_ok=True)

    async def aget(self, scope: StoreScope, key: str, *, session: Any = None) -> str | None:
        found: str | None = await _beside(self.get, scope, key)
        return found

    async def aset(
        self, scope: StoreScope, key: str, value: str, *, expires_at: datetime | None = None, session: Any = None
    ) -> None:
        await _beside(self.set, scope, key, value, expires_at=expires_at)

    async def adelete(self, scope: StoreScope, key: str, *, session: Any = None) -> None:
        await _beside(self.delete, scope, key)

    async def aclear(self, scope: StoreScope, *, all_map_indices: bool = False, session: Any = None) -> None:
        await _beside(self.clear, scope, all_map_indices=all_map_indices)

    def cleanup(self) -> None:
        now = datetime.now(UTC)
        for file in _files(self._folder):
            with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
                expires_at = _decode(file.read_bytes()).expires_at
                if expires_at is not None and expires_at <= now:
                    file.unlink()

    # --- in the task's process ---------------------------------------------------------------------------------------

    def serialize_task_state_store_to_ref(self, *, value: Any, key: str, scope: TaskScope) -> str:
        return self._kept(scope, key, value)

    def deserialize_task_state_store_from_ref(self, stored: str) -> Any:
        return self._found(stored)

    def serialize_asset_state_store_to_ref(self, *, value: Any, key: str, scope: AssetScope) -> str:
        return self._kept(scope, key, value)

    def deserialize_asset_state_store_from_ref(self, stored: str) -> Any:
        return self._found(stored)

    def _kept(self, scope: StoreScope, key: str, value: Any) -> str:
        file = self._place(scope) / _quoted(key)
        self._write(file, msgspec.json.encode(value).decode(), None)
        return str(file.relative_to(self._folder))

    def _found(self, stored: str) -> Any:
        text = self._read(self._folder / stored)
        if text is None:
            raise FileNotFoundError(f"the value at {stored!r} is not in {self._folder} any more")
        return msgspec.json.decode(text)

    def _place(self, scope: StoreScope) -> Path:
        if isinstance(scope, TaskScope):
            steps = ["tasks", scope.dag_id, scope.run_id, scope.task_id, str(scope.map_index)]
        else:
            steps = ["assets", scope.name or scope.uri or str(scope.asset_id)]
        return self._folder.joinpath(*map(_quoted, steps))

    def _read(self, file: Path) -> str | None:
        try:
            kept = _decode(file.read_bytes())
        except FileNotFoundError:
            return None
        is_over = kept.expires_at is not None and kept.expires_at <= datetime.now(UTC)
        return None if is_over else bytes(kept.value).decode()

    def _write(self, file: Path, value: str, expires_at: datetime | None) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        half = file.with_name(f".{new_id()}")
        half.write_bytes(msgspec.json.encode(_Kept(msgspec.Raw(value.encode()), expires_at)))
        half.replace(file)


def _files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))


def _quoted(text: str) -> str:
    """The text as the name of a file, however odd; two texts never share one, and none begins with a dot."""
    safe = "".join(one if one.isascii() and (one.isalnum() or one in "_-") else f"%{ord(one):x};" for one in text)
    if len(safe) <= 200:
        return safe
    digest: str = importlib.import_module("hashlib").sha256(text.encode()).hexdigest()
    return f"{safe[:100]}%%{digest}"


async def _beside(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    return await importlib.import_module("asyncio").to_thread(function, *args, **kwargs)
