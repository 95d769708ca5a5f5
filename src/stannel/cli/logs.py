"""Reads the logs of attempts: JSON lines in files, shown to people as lines of text, also while they grow."""

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from stannel.model.run import Attempt, Run, TaskInstance
from stannel.supervisor.tasklog import log_path

_POLL_SECONDS = 0.2
_SHOWN = ("timestamp", "level", "logger", "event", "error_detail", "exception", "trigger_id")
_LEVEL_STYLES = {"warning": "yellow", "error": "red", "critical": "bold red", "debug": "dim"}


def path_of(base: Path, run: Run, instance: TaskInstance, try_number: int) -> Path:
    """Where the log of one try stands; it need not exist."""
    attempt = Attempt(
        attempt_id=instance.attempt_id or "",
        ti_pk=instance.pk,
        run=run,
        task_id=instance.task_id,
        map_index=instance.map_index,
        try_number=try_number,
        max_tries=instance.max_tries,
        queue=instance.queue,
        fileloc="",
        start_date=instance.start_date or run.run_after,
    )
    return log_path(base, attempt)


def read_lines(path: Path) -> list[str]:
    """The lines that are complete by now, in the order in which they were written; a missing file has none.

    Several processes append to one log, each in batches: their lines may stand in it a little out of turn.
    """
    return in_order(LogTail(path).new_lines())


def in_order(lines: Iterable[str]) -> list[str]:
    """The lines by their timestamps. One without a timestamp stays behind the one before it."""
    dated, latest = [], datetime.min.replace(tzinfo=UTC)
    for line in lines:
        latest = _moment((_record(line) or {}).get("timestamp")) or latest
        dated.append((latest, line))
    return [line for _, line in sorted(dated, key=itemgetter(0))]


def follow(path: Path, is_over: Callable[[], bool]) -> Iterator[str]:
    """Lines as they are written, until `is_over` says that no more will come and all were read."""
    tail = LogTail(path)
    while True:
        # Asked before reading: what was written before the end is in the file when the end is known.
        over = is_over()
        yield from tail.new_lines()
        if over:
            return
        time.sleep(_POLL_SECONDS)


class LogTail:
    """A file that grows, read from where the last look ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def new_lines(self) -> Iterator[str]:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole, newline, _ = data.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        if newline:
            yield from whole.decode("utf-8", "replace").split("\n")


def styled(line: str) -> tuple[str, str]:
    """A line of a log file as people read it, and the style of its level."""
    record = _record(line)
    if record is None:
        return line, ""
    level = str(record.get("level", "info"))
    more = " ".join(f"{key}={_short(value)}" for key, value in record.items() if key not in _SHOWN)
    whose = f"[trigger {record['trigger_id']}] " if "trigger_id" in record else ""
    text = f"{_clock(record.get('timestamp'))} {level.upper():<8} {whose}{record.get('event', '')}"
    text = f"{text}  {more}" if more else text
    trouble = record.get("error_detail") or record.get("exception")
    if trouble:
        text = f"{text}\n{_exception(trouble)}"
    return text, _LEVEL_STYLES.get(level, "")


def written_at(line: str) -> str:
    """The timestamp of a line, to sort by; empty if it has none."""
    return str((_record(line) or {}).get("timestamp", ""))


def _record(line: str) -> dict[str, Any] | None:
    try:
        record: Any = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return record if isinstance(record, dict) else None


def print_for_people(lines: Iterable[str], out: Console, prefix: str = "") -> None:
    """Print lines of a log file; `prefix` says whose they are."""
    for line in lines:
        text, style = styled(line)
        out.print(Text(prefix, style="bold") + Text(text, style=style), soft_wrap=True)


def _clock(timestamp: object) -> str:
    found = _moment(timestamp)
    return f"{found:%H:%M:%S.%f}"[:-3] if found else "            "


def _moment(timestamp: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(timestamp)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _short(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


def _exception(detail: Any) -> str:
    if isinstance(detail, str):
        return detail.rstrip()
    return msgspec.json.format(msgspec.json.encode(detail, enc_hook=str), indent=2).decode()
