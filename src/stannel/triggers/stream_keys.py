"""The key of a shared stream as text: equal keys give equal texts in every process, so that texts can be stored."""

import logging
import re
from collections.abc import Hashable
from typing import Any

from stannel.triggers.base import BaseEventTrigger

_log = logging.getLogger(__name__)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def key_of(trigger: Any) -> Hashable | None:
    """The trigger's key. None: it reads alone, as do triggers whose key cannot be told."""
    if not isinstance(trigger, BaseEventTrigger):
        return None
    try:
        key = trigger.shared_stream_key()
        hash(key)
    except Exception as error:  # noqa: BLE001 - authors' code; the trigger can be run all the same
        _log.warning("%s reads alone: its shared_stream_key() raised %r", type(trigger).__name__, error)
        return None
    return key


def key_in_words(key: Hashable) -> str:
    """The key as people are shown it. Sets are put in order; of objects that show where they are, that is left out."""
    return _ADDRESS.sub("", _ordered(key))


def _ordered(value: Any) -> str:
    if isinstance(value, frozenset):
        return f"frozenset({{{', '.join(sorted(map(_ordered, value)))}}})"
    if type(value) is tuple:
        return f"({', '.join(map(_ordered, value))}{',' if len(value) == 1 else ''})"
    return repr(value)
