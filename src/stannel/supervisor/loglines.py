"""Turns whatever a task process writes into log records; nothing it writes can be an error here."""

import re
from datetime import datetime
from typing import Any

import msgspec

LONGEST_LINE = 1024 * 1024
_CUT_MARK = " ... [line cut at 1 MiB]"

_LEVELS = {
    "critical": "critical",
    "fatal": "critical",
    "exception": "error",
    "error": "error",
    "warn": "warning",
    "warning": "warning",
    "info": "info",
    "notset": "info",
    "debug": "debug",
    "trace": "debug",
}
_TOO_PRECISE = re.compile(r"(\.\d{6})\d+")

Record = dict[str, Any]


class Lines:
    """Bytes in, whole lines out. A line longer than 1 MiB is cut, and its rest is thrown away as it arrives."""

    def __init__(self, limit: int = LONGEST_LINE) -> None:
        self._limit = limit
        self._rest = b""
        self._is_skipping = False

    def feed(self, data: bytes) -> list[str]:
        *whole, rest = data.split(b"\n")
        lines = []
        for part in whole:
            if not self._is_skipping:
                lines.append(self._text(self._rest + part))
            self._rest, self._is_skipping = b"", False
        if self._is_skipping:
            return lines
        self._rest += rest
        if len(self._rest) > self._limit:
            lines.append(self._text(self._rest))
            self._rest, self._is_skipping = b"", True
        return lines

    def end(self) -> list[str]:
        """What stands behind the last line break, if anything."""
        rest, self._rest = self._rest, b""
        return [self._text(rest)] if rest else []

    def _text(self, line: bytes) -> str:
        if len(line) > self._limit:
            return line[: self._limit].decode("utf-8", "replace") + _CUT_MARK
        return line.decode("utf-8", "replace").rstrip()


def record_from(line: str, arrived: str) -> Record:
    """The record a line of the logs channel means; a line that is no such record becomes the text of one."""
    try:
        given = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return plain_record(arrived, "info", "task", line)
    if not isinstance(given, dict):
        return plain_record(arrived, "info", "task", line)
    event, logger = given.pop("event", ""), given.pop("logger", "task")
    record: Record = {
        "timestamp": _moment(given.pop("timestamp", None)) or arrived,
        "level": _level(given.pop("level", None)),
        "logger": logger if isinstance(logger, str) else str(logger),
        "event": event if isinstance(event, str) else msgspec.json.encode(event).decode(),
    }
    record.update(given)
    return record


def plain_record(arrived: str, level: str, logger: str, event: str) -> Record:
    return {"timestamp": arrived, "level": level, "logger": logger, "event": event}


def _level(given: object) -> str:
    if not isinstance(given, str):
        return "info"
    # Go writes levels between the named ones as `info+2`.
    return _LEVELS.get(re.split(r"[+-]", given.lower(), maxsplit=1)[0], "info")


def _moment(given: object) -> str | None:
    """The moment in ISO form with a zone; one without a zone is this machine's local time."""
    if not isinstance(given, str):
        return None
    try:
        moment = datetime.fromisoformat(_TOO_PRECISE.sub(r"\1", given))
    except ValueError:
        return None
    return given if moment.tzinfo is not None else moment.astimezone().isoformat()
