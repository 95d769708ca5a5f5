"""Who answers what tasks ask, and how patient a supervisor is: the contracts of supervision."""

from typing import Protocol

import msgspec

from stannel.model.run import Attempt, Outcome
from stannel.protocol.frames import DEFAULT_FRAME_LIMIT
from stannel.protocol.refusal import Refused
from stannel.protocol.replies import Reply
from stannel.protocol.requests import Request

__all__ = ["Desk", "Limits", "Refused"]


class Desk(Protocol):
    """Who answers for the engine."""

    async def answer(self, attempt: Attempt, request: Request) -> Reply | None:
        """The reply to a request, None for a plain acknowledgement. May raise `Refused`."""

    async def finish(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Store how the attempt ended. False: it is no longer ours, nothing was stored."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a supervisor waits, in seconds, and how much it reads.

    `timeout_slack`: a runtime that keeps its execution timeout itself is given this much longer to say so.
    `term_grace`: from SIGTERM to SIGKILL. `overtime`: a process may linger after its result. `drain`: streams may stay
    open after the process. `ack`: a result waits for its acknowledgement. `answer`: a request waits for its reply.
    `report`: a result that cannot be stored is tried again.
    """

    timeout_slack: float = 1.0
    term_grace: float = 5.0
    overtime: float = 20.0
    drain: float = 5.0
    ack: float = 5.0
    answer: float = 25.0
    report: float = 60.0
    frame_limit: int = DEFAULT_FRAME_LIMIT
