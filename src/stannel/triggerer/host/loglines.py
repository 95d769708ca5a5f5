"""Sends what triggers log and print to the triggerer, each line under the id of the trigger that wrote it."""

import io
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

from stannel.protocol.triggering import LogRecord
from stannel.runner.records import set_levels
from stannel.triggerer.host.scope import owner_id
from stannel.triggerer.host.wire import Wire

LOGGER = "stannel.triggerer"
LONGEST_LINE = 256 * 1024
_CUT_MARK = " ... [line cut]"
_LEVELS = {"warn": "warning", "fatal": "critical", "notset": "info"}
_NUMBERS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
# Printed text without an end of line is kept until it has one, but not without limit.
_LONGEST_REST = 64 * 1024

_formatter = logging.Formatter()


def clean(text: str) -> str:
    """The text as it can be sent: valid, and of a bounded length."""
    if len(text) > LONGEST_LINE:
        text = text[:LONGEST_LINE] + _CUT_MARK
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def line(trigger_id: int | None, level: str, logger: str, event: str, **fields: Any) -> LogRecord:
    """A line of the host's own making."""
    return LogRecord(trigger_id, datetime.now(UTC).isoformat(), level, logger, clean(event), fields or None)


class TriggerLines(logging.Handler):
    """The only log handler of the host. It never raises into a trigger's code."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._wire.log(_sendable(record))
        except Exception:  # noqa: BLE001 - logging.Handler's own rule: a bad record is told on stderr, nothing more
            self.handleError(record)


def _sendable(record: logging.LogRecord) -> LogRecord:
    level = record.levelname.lower()
    fields = {}
    if record.exc_info and record.exc_info[0] is not None:
        fields["exception"] = clean(_formatter.formatException(record.exc_info))
    if record.stack_info:
        fields["stack"] = clean(record.stack_info)
    return LogRecord(
        getattr(record, "trigger_id", None) or owner_id(),
        datetime.fromtimestamp(record.created, UTC).isoformat(),
        clean(_LEVELS.get(level, level)),
        clean(record.name),
        clean(record.getMessage()),
        fields or None,
    )


class Printed(io.TextIOBase):
    """Stands in for stdout or stderr: whole lines become lines of the log of whoever printed them."""

    def __init__(self, wire: Wire, logger: str, level: str) -> None:
        super().__init__()
        self._wire, self._logger, self._level = wire, logger, level
        self._rests: dict[int | None, str] = {}

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        trigger_id = owner_id()
        *whole, rest = (self._rests.pop(trigger_id, "") + text).split("\n")
        if len(rest) > _LONGEST_REST:
            whole.append(rest)
            rest = ""
        if rest:
            self._rests[trigger_id] = rest
        for each in whole:
            self._wire.log(line(trigger_id, self._level, self._logger, each))
        return len(text)

    def end(self, trigger_id: int) -> None:
        """The trigger is gone: what it printed without an end of line is a line."""
        rest = self._rests.pop(trigger_id, None)
        if rest:
            self._wire.log(line(trigger_id, self._level, self._logger, rest))


class Output:
    """stdout and stderr of the host, and the root logger: all of them lead to the triggerer."""

    def __init__(self, wire: Wire, level: str) -> None:
        self._wire = wire
        self._streams = (Printed(wire, "task.stdout", "info"), Printed(wire, "task.stderr", "error"))
        sys.stdout, sys.stderr = self._streams
        logging.root.handlers[:] = [TriggerLines(wire)]
        logging.captureWarnings(True)
        set_levels(os.environ)
        logging.root.setLevel(level if isinstance(logging.getLevelName(level), int) else logging.INFO)

    def say(self, trigger_id: int | None, level: str, event: str, **fields: Any) -> None:
        """A line of the host's own about a trigger."""
        if logging.root.isEnabledFor(_NUMBERS[level]):
            self._wire.log(line(trigger_id, level, LOGGER, event, **fields), is_vital=True)

    def end(self, trigger_id: int) -> None:
        for stream in self._streams:
            stream.end(trigger_id)
