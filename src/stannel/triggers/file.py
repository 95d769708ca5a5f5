"""Triggers that wait for files. The file system may be slow, so every look at it happens in a thread."""

import asyncio
import glob
import os
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import aclosing
from typing import Any, TypeVar

from stannel.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

T = TypeVar("T")


class FileTrigger(BaseTrigger):
    """Fires `True` once there is a file, or a folder with a file somewhere in it, that `filepath`, a glob, names."""

    def __init__(self, filepath: str | os.PathLike[str], recursive: bool = False, poke_interval: float = 5.0) -> None:
        super().__init__()
        self.filepath, self.recursive, self.poke_interval = os.fspath(filepath), recursive, poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            "stannel.triggers.file.FileTrigger",
            {"filepath": self.filepath, "recursive": self.recursive, "poke_interval": self.poke_interval},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        found = await _poll(self.poke_interval, first_with_file, self.filepath, self.recursive)
        self.log.info("Found %s", found)
        yield TriggerEvent(True)


class FileDeleteTrigger(BaseEventTrigger):
    """Waits for a file, deletes it and fires `True`. Of several that wait for one file, one fires."""

    def __init__(self, filepath: str | os.PathLike[str], poke_interval: float = 5.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.filepath, self.poke_interval = os.fspath(filepath), poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            "stannel.triggers.file.FileDeleteTrigger",
            {"filepath": self.filepath, "poke_interval": self.poke_interval},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await _poll(self.poke_interval, _was_deleted, self.filepath)
        self.log.info("Found and deleted %s", self.filepath)
        yield TriggerEvent(True)


class DirectoryFileDeleteTrigger(BaseEventTrigger):
    """Waits for a file of that name in a folder, deletes it and fires its path.

    Triggers with the same folder and interval share one scan of it.
    """

    def __init__(
        self, *, directory: str | os.PathLike[str], filename: str, poke_interval: float = 5.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if os.path.basename(filename) != filename:
            raise ValueError(f"A file name without a folder is needed, not {filename!r}; name the folder in directory.")
        self.directory, self.filename, self.poke_interval = os.fspath(directory), filename, poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            "stannel.triggers.file.DirectoryFileDeleteTrigger",
            {"directory": self.directory, "filename": self.filename, "poke_interval": self.poke_interval},
        )

    def shared_stream_key(self) -> Hashable | None:
        return ("directory-scan", os.path.realpath(self.directory), self.poke_interval)

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        trigger = cls(**kwargs)
        while True:
            try:
                names = await asyncio.to_thread(_names_in, trigger.directory)
            # These do not pass by themselves; whoever waits should know.
            except (PermissionError, NotADirectoryError, IsADirectoryError):
                raise
            except OSError as error:
                trigger.log.warning("Scanning %s failed and is tried again: %s", trigger.directory, error)
            else:
                yield {"directory": trigger.directory, "names": names}
            await asyncio.sleep(trigger.poke_interval)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        filepath = os.path.join(self.directory, self.filename)
        async for snapshot in shared_stream:
            if self.filename in snapshot["names"] and await asyncio.to_thread(_was_deleted, filepath):
                yield TriggerEvent({"filepath": filepath})
                return

    async def run(self) -> AsyncIterator[TriggerEvent]:
        async with aclosing(self.open_shared_stream(self.serialize()[1])) as snapshots:  # type: ignore[type-var]
            async for event in self.filter_shared_stream(snapshots):
                yield event


async def _poll(interval: float, look: Callable[..., T], *args: Any) -> T:
    """The first answer of `look` that is not nothing."""
    while not (seen := await asyncio.to_thread(look, *args)):  # noqa: ASYNC110 - file systems tell nobody
        await asyncio.sleep(interval)
    return seen


def first_with_file(pattern: str, recursive: bool) -> str | None:
    """The first match that is a file, or a folder with a file somewhere in it. None: there is none yet."""
    return next(filter(_has_file, sorted(glob.glob(pattern, recursive=recursive))), None)


def _has_file(path: str) -> bool:
    return os.path.isfile(path) or any(files for _, _, files in os.walk(path))


def _was_deleted(path: str) -> bool:
    """True: the file was there and we are the one who deleted it."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def _names_in(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
