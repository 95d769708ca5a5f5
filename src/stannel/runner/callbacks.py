"""Runs the author's callbacks; what goes wrong in one is logged and changes nothing."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from stannel.runner.tracebacks import user_frames
from stannel.sdk.log import TASK_LOGGER

_log = logging.getLogger(TASK_LOGGER)


def run_callbacks(owner: Any, kind: str, context: Any) -> None:
    """Call `on_<kind>_callback` of a task or DAG: one function or several, each on its own."""
    given: Callable[[Any], Any] | Sequence[Callable[[Any], Any]] | None = getattr(owner, f"on_{kind}_callback", None)
    if not given:
        return
    for callback in [given] if callable(given) else given:
        try:
            callback(context)
        except Exception as error:  # noqa: BLE001 - a callback must not change how its task ended
            name = getattr(callback, "__qualname__", repr(callback))
            _log.error(
                "The on_%s callback %s failed; the outcome stays as it is", kind, name, exc_info=user_frames(error)
            )
