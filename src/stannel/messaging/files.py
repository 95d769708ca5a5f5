"""A folder as a queue: each file in it is a message, removed or put away once everything made of it is stored."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import chain, count
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from stannel.messaging.broker import BrokerTrigger, Fate, Reading, Window, fate_of
from stannel.messaging.message import Message
from stannel.messaging.provider import BaseMessageQueueProvider
from stannel.triggers.shared_stream import AdvanceItem, SharedStreamProducer

# Files that are being written; they get their name when they are complete.
_UNFINISHED = (".part", ".tmp")


@dataclass(frozen=True, kw_only=True)
class FileReading(Reading):
    """The files in `directory` whose names match `pattern`, oldest first; with `content` what they hold is the message.

    A file that is done is deleted, or moved to the folder `done`; a dead letter to `dead_letter`, `<directory>/dead`
    unless given. Names that begin with a dot or end in `.part` or `.tmp` are not looked at: write a file under such a
    name, and rename it when it is complete.
    """

    default_conn_id: ClassVar[str] = ""
    identity: ClassVar[tuple[str, ...]] = ("directory", "pattern")

    directory: str
    pattern: str = "*"
    content: bool = False
    done: str | None = None
    dead_letter: str | None = None
    poll_interval: float = 1.0

    @property
    def dead_folder(self) -> Path:
        return Path(self.dead_letter) if self.dead_letter is not None else Path(self.directory, "dead")


class FilePosition(NamedTuple):
    """A file as it was when it was found; one that has replaced it since is another."""

    path: str
    changed: int
    size: int


class FileProducer(SharedStreamProducer):
    """Looks into the folder again and again. How often somebody has failed on a file is known until it is closed."""

    def __init__(self, reading: FileReading) -> None:
        self._reading = reading
        self._window = Window(reading.prefetch)
        self._out: set[FilePosition] = set()
        self._failures: dict[FilePosition, int] = {}
        self._put_off: dict[FilePosition, float] = {}

    async def open_stream(self) -> AsyncIterator[tuple[Message, FilePosition]]:
        while True:
            for position in await asyncio.to_thread(self._look):
                if position in self._out or self._put_off.get(position, 0) > _now():
                    continue
                message = await asyncio.to_thread(self._message, position)
                if message is not None:
                    self._put_off.pop(position, None)
                    self._out.add(position)
                    self._window.take()
                    yield message, position
                await self._window.room()
            await asyncio.sleep(self._reading.poll_interval)

    def _look(self) -> list[FilePosition]:
        found = []
        with os.scandir(self._reading.directory) as entries:
            for entry in entries:
                is_whole = not entry.name.startswith(".") and not entry.name.endswith(_UNFINISHED)
                if is_whole and fnmatch(entry.name, self._reading.pattern) and entry.is_file():
                    found.append(_position(entry))
        return sorted((one for one in found if one is not None), key=lambda one: (one.changed, one.path))

    def _message(self, position: FilePosition) -> Message | None:
        """None: it has gone meanwhile."""
        path = Path(position.path)
        try:
            data = path.read_bytes() if self._reading.content else None
        except FileNotFoundError:
            return None
        about = {"path": position.path, "name": path.name, "size": position.size, "changed": position.changed}
        return Message(data, about)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        for position, outcome in batch:
            if position not in self._out:
                continue
            deliveries = self._failures.get(position, 0) + 1
            match fate_of(outcome, deliveries, self._reading.max_deliveries):
                case Fate.DONE:
                    await asyncio.to_thread(self._end, position, self._reading.done)
                    self._failures.pop(position, None)
                case Fate.DEAD:
                    await asyncio.to_thread(self._end, position, str(self._reading.dead_folder))
                    self._failures.pop(position, None)
                case Fate.AGAIN:
                    self._failures[position] = self._failures.get(position, 0) + bool(outcome.failed)
                    self._put_off[position] = _now() + self._reading.retry_delay
            self._out.discard(position)
            self._window.give_back()

    def _end(self, position: FilePosition, folder: str | None) -> None:
        """Delete the file, or move it to the folder, unless it is gone or another has taken its place."""
        if _position(Path(position.path)) != position:
            return
        if folder is None:
            Path(position.path).unlink(missing_ok=True)
            return
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        Path(position.path).replace(_free_name(place / Path(position.path).name))

    def get_event_identity(self, broker_payload: FilePosition) -> str:
        return f"{broker_payload.path}@{broker_payload.changed}"

    def may_retry_advance(self, error: Exception) -> bool:
        return isinstance(error, OSError)


def _position(file: Any) -> FilePosition | None:
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return FilePosition(os.fspath(file), status.st_mtime_ns, status.st_size)


def _free_name(path: Path) -> Path:
    """That path, or one with a number if it is taken."""
    numbered = (path.with_name(f"{path.name}.{number}") for number in count(2))
    return next(found for found in chain([path], numbered) if not found.exists())


def _now() -> float:
    return asyncio.get_running_loop().time()


class FolderTrigger(BrokerTrigger):
    """Fires for the files of a folder; the arguments are those of `FileReading` and `BrokerTrigger`."""

    broker = "file"
    reading_class = FileReading

    @classmethod
    def producer(cls, reading: Any) -> SharedStreamProducer:
        return FileProducer(reading)


class FileProvider(BaseMessageQueueProvider):
    """`MessageQueueTrigger(scheme="file", directory=...)`."""

    scheme = "file"

    def trigger_class(self) -> type[FolderTrigger]:
        return FolderTrigger

    def trigger_kwargs(self, queue: str | None, **kwargs: Any) -> dict[str, Any]:
        """`file:///path/to/folder`."""
        return {} if queue is None else {"directory": queue.removeprefix("file://")}
