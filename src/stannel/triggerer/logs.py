"""What triggers say goes into the logs of their tasks: in order, masked, batched, and without a file kept open."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stannel.model.masking import SecretMask
from stannel.model.trigger import Trigger
from stannel.protocol.triggering import LogRecord
from stannel.supervisor.loglines import plain_record
from stannel.supervisor.tasklog import as_json, log_path, open_log, watcher_log_path
from stannel.triggerer.held import Held

log = logging.getLogger(__name__)

_FLUSH_SECONDS = 0.05
# Lines that wait for a disk that is slower than the triggers; what comes beyond is dropped and counted.
_MOST_BYTES = 64 * 1024 * 1024
_OWN = "stannel.triggerer"


class TriggerLogs:
    """Collects lines on the loop; any thread may write them down."""

    def __init__(self, base: Path, run_in_thread: Callable[[Callable[[], None]], object]) -> None:
        self._base, self._run_in_thread = base, run_in_thread
        self._lock = threading.Condition()
        # By trigger: the file it belongs to, and the lines that wait for it.
        self._waiting: dict[int, tuple[Path, list[bytes]]] = {}
        self._being_written: set[int] = set()
        self._bytes = 0
        self._dropped = 0
        self._timer: asyncio.TimerHandle | None = None
        self._complained = False

    def take(self, records: Iterable[LogRecord], running: dict[int, Held], mask: SecretMask) -> None:
        """Lines from a host. Those of a trigger go to its task's log, the others to the engine's own."""
        paths: dict[int, Path] = {}
        for record in records:
            held = running.get(record.trigger_id) if record.trigger_id is not None else None
            if held is None:
                _to_engine_log(record, mask)
                continue
            path = paths.get(held.id) or paths.setdefault(held.id, path_of(self._base, held.trigger))
            line = plain_record(record.timestamp, record.level, record.logger, mask.redact_text(record.event))
            line["trigger_id"] = held.id
            for name, value in (record.fields or {}).items():
                line.setdefault(name, mask.redact(value, name))
            self._append(held.id, path, line)

    def note(self, trigger: Trigger, event: str, level: str = "info", **fields: Any) -> None:
        """A line of the triggerer's own in the log of the task that waits."""
        line = plain_record(datetime.now(UTC).isoformat(), level, _OWN, event)
        self._append(trigger.id, path_of(self._base, trigger), {**line, "trigger_id": trigger.id, **fields})

    def flush(self) -> None:
        """Write what was collected so far; when this returns it is in the files. Safe from any thread."""
        with self._lock:
            triggers = [*self._waiting, *self._being_written]
            dropped, self._dropped = self._dropped, 0
        dropped += sum(self._write(trigger_id) for trigger_id in triggers)
        if dropped:
            log.error("%d lines of triggers could not be written to their tasks' logs and are lost", dropped)

    def flush_those_of(self, trigger_ids: Iterable[int]) -> None:
        """Write the lines of these triggers only: whoever waits for them does not wait for thousands of others."""
        for trigger_id in trigger_ids:
            self._write(trigger_id)

    def _write(self, trigger_id: int) -> int:
        """Write the lines of this trigger, after those that are being written; how many were lost."""
        with self._lock:
            self._lock.wait_for(lambda: trigger_id not in self._being_written)
            waiting = self._waiting.pop(trigger_id, None)
            if waiting is None:
                return 0
            path, lines = waiting
            self._bytes -= sum(map(len, lines))
            self._being_written.add(trigger_id)
        try:
            _append_to(path, b"\n".join(lines) + b"\n")
        except OSError as error:
            self._complain(path, error)
            return len(lines)
        finally:
            with self._lock:
                self._being_written.discard(trigger_id)
                self._lock.notify_all()
        return 0

    def _append(self, trigger_id: int, path: Path, record: dict[str, Any]) -> None:
        line = as_json(record)
        with self._lock:
            if self._bytes + len(line) > _MOST_BYTES:
                self._dropped += 1
                return
            self._waiting.setdefault(trigger_id, (path, []))[1].append(line)
            self._bytes += len(line)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._flush_later)

    def _flush_later(self) -> None:
        self._timer = None
        with self._lock:
            is_needed = bool(self._waiting)
        if is_needed:
            self._run_in_thread(self.flush)

    def _complain(self, path: Path, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            log.error("The log %s cannot be written (%s); triggers go on, their lines are dropped.", path, error)


def path_of(base: Path, trigger: Trigger) -> Path:
    """Where the lines of a trigger go: to the log of the task that waits for it; a watcher has one of its own."""
    watch = trigger.watch
    return log_path(base, trigger) if watch is None else watcher_log_path(base, watch.asset, watch.name)


def _append_to(path: Path, data: bytes) -> None:
    descriptor = open_log(path)
    try:
        written = 0
        while written < len(data):
            written += os.write(descriptor, memoryview(data)[written:])
    finally:
        os.close(descriptor)


def _to_engine_log(record: LogRecord, mask: SecretMask) -> None:
    level = logging.getLevelNamesMapping().get(record.level.upper(), logging.INFO)
    detail = f" {mask.redact(record.fields)}" if record.fields else ""
    logging.getLogger(f"{_OWN}.host").log(level, "%s: %s%s", record.logger, mask.redact_text(record.event), detail)
