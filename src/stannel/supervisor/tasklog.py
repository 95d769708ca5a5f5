"""The log of one attempt: a file of JSON lines, readable while the task runs. Its troubles are never the task's."""

import asyncio
import contextlib
import hashlib
import logging
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from stannel.model.ids import UNMAPPED
from stannel.model.masking import SecretMask
from stannel.supervisor.loglines import Record, plain_record, record_from

_log = logging.getLogger(__name__)

_FLUSH_SECONDS = 0.05
_FLUSH_BYTES = 64 * 1024
# With its index and number beside it, an id stays within the 255 bytes of a file name.
_LONGEST_NAME = 200
_OWN_FIELDS = frozenset({"timestamp", "level", "logger"})
_encode = msgspec.json.Encoder(enc_hook=repr).encode
_reported_folders: set[str] = set()


class Try(Protocol):
    """One try of a task instance: all its attempts, and the triggers it waits for, share a log."""

    @property
    def dag_id(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def task_id(self) -> str: ...
    @property
    def map_index(self) -> int: ...
    @property
    def try_number(self) -> int: ...


def log_path(base: Path, attempt: Try) -> Path:
    """Where the attempt's log stands: `dag_id=D/run_id=R/task_id=T[.map_index=M].attempt=N.log` under `base`.

    A trigger writes into the log of the attempt that waits for it.
    """
    # One folder per run: a folder per task would cost every short task more than its log.
    index = "" if attempt.map_index == UNMAPPED else f".map_index={attempt.map_index}"
    dag_id, run_id, task_id = (_as_file_name(name) for name in (attempt.dag_id, attempt.run_id, attempt.task_id))
    return base / f"dag_id={dag_id}/run_id={run_id}/task_id={task_id}{index}.attempt={attempt.try_number}.log"


def watcher_log_path(base: Path, asset: str, watcher: str) -> Path:
    """Where a watcher of an asset has its log."""
    return base / f"watchers/asset={_as_file_name(asset)}/watcher={_as_file_name(watcher)}.log"


def append_note(path: Path, logger: str, event: str, level: str = "info", **fields: Any) -> None:
    """Add one line to a task's log from outside its supervisor. What cannot be written is dropped."""
    line = as_json({**plain_record(_now(), level, logger, event), **fields})
    with contextlib.suppress(OSError):
        file = open_log(path)
        try:
            os.write(file, line + b"\n")
        finally:
            os.close(file)


class TaskLog:
    """Collects lines and appends them to the file in batches. Secrets added to `mask` do not appear in later lines."""

    def __init__(self, path: Path, sensitive_names: Iterable[str] = ()) -> None:
        self.path = path
        self.dropped = 0
        self._sensitive_names = sensitive_names
        self._mask: SecretMask | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._file: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def mask(self) -> SecretMask:
        if self._mask is None:
            self._mask = SecretMask(self._sensitive_names)
        return self._mask

    def redact(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields without the secrets known so far."""
        hidden: dict[str, Any] = self.mask.redact(fields)
        return hidden

    def note(self, event: str, level: str = "info", **fields: Any) -> None:
        """A line of the supervisor's own."""
        self._append({**plain_record(_now(), level, "stannel.supervisor", event), **fields})

    def output(self, logger: str, level: str, lines: Iterable[str]) -> None:
        """Lines the process printed."""
        now = _now()
        for line in lines:
            self._append(plain_record(now, level, logger, line))

    def records(self, lines: Iterable[str]) -> None:
        """Lines of the logs channel."""
        now = _now()
        for line in lines:
            if line:
                self._append(record_from(line, now))

    def flush(self) -> None:
        """Write what waits. What cannot be written is dropped and counted; the next line that can be says so."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if self.dropped:
            lines.insert(0, _encode(plain_record(_now(), "error", "stannel.supervisor", _lost(self.dropped))))
        try:
            self._write(b"\n".join(lines) + b"\n")
        except OSError as error:
            self.dropped += len(lines) - (1 if self.dropped else 0)
            self._complain(error)
        else:
            self.dropped = 0

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None

    def _append(self, record: Record) -> None:
        if self._mask is not None:
            record = {
                key: value if key in _OWN_FIELDS else self._mask.redact(value, key) for key, value in record.items()
            }
        line = as_json(record)
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes > _FLUSH_BYTES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._flush_later)

    def _flush_later(self) -> None:
        self._timer = None
        self.flush()

    def _write(self, data: bytes) -> None:
        if self._file is None:
            self._file = open_log(self.path)
        start = os.lseek(self._file, 0, os.SEEK_END)
        try:
            written = 0
            while written < len(data):
                written += os.write(self._file, memoryview(data)[written:])
        except OSError:
            # Half a line would spoil the next one.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, start)
            raise

    def _complain(self, error: OSError) -> None:
        folder = str(self.path.parents[min(2, len(self.path.parents) - 1)])
        if folder not in _reported_folders:
            _reported_folders.add(folder)
            _log.error("The log %s cannot be written (%s); tasks go on, their lines are dropped.", self.path, error)


def as_json(record: Record) -> bytes:
    """The record as a line of the log, whatever is in it."""
    try:
        return _encode(record)
    except (ValueError, TypeError, OverflowError, RecursionError):
        # Half a character, a number without end: told as text, since a log loses no line over it.
        return _encode({key: str(value).encode("utf-8", "replace").decode() for key, value in record.items()})


def open_log(path: Path) -> int:
    """A descriptor that appends to the log; its folder is made if it is missing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError:
        os.makedirs(path.parent, exist_ok=True)
        return os.open(path, flags, 0o644)


def _as_file_name(name: str) -> str:
    """The id as one component of a path: no slashes, and no longer than file systems allow."""
    quoted = name.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")
    if len(quoted.encode(errors="surrogateescape")) <= _LONGEST_NAME:
        return quoted
    digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:16]
    return f"{quoted.encode(errors='surrogateescape')[: _LONGEST_NAME - 17].decode(errors='ignore')}~{digest}"


def _lost(count: int) -> str:
    return f"{count} earlier lines of this log could not be written and are lost"


def _now() -> str:
    return datetime.now(UTC).isoformat()
