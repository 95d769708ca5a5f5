"""Whether a host makes progress: decided from what was heard of it, and when."""

from enum import Enum, auto

import msgspec

_IMPORTING = "<frozen importlib"


class Blocked(msgspec.Struct, frozen=True):
    """Where the host's loop stands still. `trigger_id` None: in nobody's code."""

    trigger_id: int | None
    seconds: float
    where: str
    is_importing: bool = False


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds until something counts as wrong."""

    blocked: float
    importing: float
    silent: float
    starting: float = 30.0


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a host. `silent` is counted from its last word, or from when we could hear it again."""

    has_spoken: bool
    silent: float
    blocked: Blocked | None = None
    memory: int = 0


class Verdict(Enum):
    """What is to be done with a host."""

    FINE = auto()
    # One trigger holds up the others: end the host, and give that trigger a process of its own.
    BLOCKED = auto()
    # Not even its watching thread says anything.
    SILENT = auto()
    TOO_LARGE = auto()


def is_importing(stack: list[str]) -> bool:
    """Whether the innermost frames are those of an import: slow at the first time, and only then."""
    return any(_IMPORTING in frame for frame in stack)


def judge(signs: Signs, patience: Patience, memory_limit: int) -> Verdict:
    """The verdict on a host that several triggers share; one that is alone with its trigger harms nobody."""
    if signs.silent > (patience.silent if signs.has_spoken else patience.starting):
        return Verdict.SILENT
    blocked = signs.blocked
    if blocked is not None:
        limit = patience.blocked
        if blocked.is_importing:
            limit = max(patience.importing, limit)
        elif blocked.trigger_id is None:
            limit = max(patience.silent, limit)
        if blocked.seconds > limit:
            return Verdict.BLOCKED
    return Verdict.TOO_LARGE if signs.memory > memory_limit else Verdict.FINE
