"""How things are named: ids that sort by time, run ids, and the rules for ids that authors choose."""

import os
import re
import time
import uuid
from datetime import datetime

from stannel.errors import InvalidId

UNMAPPED = -1

_AUTHOR_ID = re.compile(r"[\w.\-]+\Z")
_ID_LIMIT = 250


def new_id() -> str:
    """A fresh UUID (version 7): unique everywhere, and later ones sort after earlier ones."""
    millis = time.time_ns() // 1_000_000
    noise = int.from_bytes(os.urandom(10), "big")
    value = (
        (millis & (1 << 48) - 1) << 80 | 0x7 << 76 | (noise >> 68 & 0xFFF) << 64 | 0b10 << 62 | noise & (1 << 62) - 1
    )
    return str(uuid.UUID(int=value))


def run_id_for(run_type: str, moment: datetime) -> str:
    """The run id authors know: the kind of run and its moment, `scheduled__2026-11-15T00:00:00+00:00`."""
    return f"{run_type}__{moment.isoformat()}"


def check_author_id(kind: str, value: object) -> str:
    """Return the id if an author may use it; refuse anything that would not survive in a path or a URL."""
    if not isinstance(value, str):
        raise InvalidId(kind, value, "it must be a string")
    if not value or len(value) > _ID_LIMIT:
        raise InvalidId(kind, value, f"it must have 1 to {_ID_LIMIT} characters")
    if not _AUTHOR_ID.match(value):
        raise InvalidId(kind, value, "only letters, digits, dashes, dots and underscores are allowed")
    return value
