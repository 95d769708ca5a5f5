"""Sends what task code logs to the supervisor: one JSON object per line, or to stderr when nobody takes it."""

import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

_encode = msgspec.json.Encoder(enc_hook=repr).encode
_LEVELS = {"warn": "warning", "fatal": "critical"}


class JsonLines(logging.Handler):
    """The only handler of a task process, writing to `fd`. It never raises into task code."""

    def __init__(self) -> None:
        super().__init__()
        self.fd = -1

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = _encode(_fields(record)) + b"\n"
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self.fd, rest) :]
        except OSError:
            sys.stderr.write(f"{record.levelname} {record.name}: {record.getMessage()}\n")
        except Exception:  # noqa: BLE001 - logging.Handler's own rule: a bad record is told on stderr, nothing more
            self.handleError(record)


def set_levels(environ: Mapping[str, str]) -> None:
    """Take the levels from the environment. Done before any fork: it touches every logger there is."""
    logging.root.setLevel(_level(_setting(environ, "LOGGING_LEVEL")) or logging.INFO)
    for pair in _setting(environ, "NAMESPACE_LEVELS").replace(",", " ").split():
        name, _, level = pair.partition("=")
        if name and (number := _level(level)) is not None:
            logging.getLogger(name).setLevel(number)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    level = record.levelname.lower()
    fields: dict[str, object] = {
        "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
        "level": _LEVELS.get(level, level),
        "logger": record.name,
        "event": record.getMessage().encode("utf-8", "replace").decode(),
    }
    if record.exc_info:
        fields["exception"] = _formatter.formatException(record.exc_info).encode("utf-8", "replace").decode()
    if record.stack_info:
        fields["stack"] = record.stack_info
    return fields


_formatter = logging.Formatter()


def _setting(environ: Mapping[str, str], key: str) -> str:
    return environ.get(f"STANNEL__LOGGING__{key}") or environ.get(f"AIRFLOW__LOGGING__{key}") or ""


def _level(name: str) -> int | None:
    number = logging.getLevelName(name.strip().upper())
    return number if isinstance(number, int) else None
