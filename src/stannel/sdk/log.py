"""The task log from the author's side: loggers, and secrets that must not appear in it."""

import logging
from typing import Any

from stannel.protocol.requests import MaskSecret
from stannel.sdk import comms, serde

TASK_LOGGER = "stannel.task"


def mask_secret(secret: Any, name: str | None = None) -> None:
    """Replace the value by `***` in this task's log from now on. While a DAG file is parsed this does nothing."""
    if secret and comms.current_channel() is not None:
        comms.ask(MaskSecret(serde.encode(secret), name))


class LoggingMixin:
    """Gives a class its `log`."""

    _log: logging.Logger | None = None
    _logger_name: str | None = None

    @property
    def log(self) -> logging.Logger:
        if self._log is None:
            kind = type(self)
            self._log = logging.getLogger(self._logger_name or f"{TASK_LOGGER}.{kind.__module__}.{kind.__name__}")
        return self._log
