"""Decides how an attempt goes on with work that lives elsewhere: submit it, find it again, wait for it, or leave it.

`next_step` looks at what is known and names one thing to do; `learn` adds what came of it. Whoever does the steps, a
plain operator, an async one or one that defers, may die before and after each of them: what is known then is what the
store holds, and a later try begins with that.

A submission has a token, which is stored before anything is submitted. The token without an id therefore means that a
job may exist; both are replaced in one transaction when a job failed and a new one is to follow.
"""

from enum import StrEnum
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Struct


class Verdict(StrEnum):
    """What a job's status means."""

    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Decision(StrEnum):
    """What an attempt found and chose, in the words of counters and spans."""

    NO_STORE = "no_task_state_store"
    FRESH_SUBMIT = "fresh_submit"
    RECONNECT = "reconnect"
    ALREADY_SUCCEEDED = "already_succeeded"
    TERMINAL_RESUBMIT = "terminal_resubmit"
    UNKNOWN_STATUS = "unknown_status"


class Patience(Struct, frozen=True):
    """How often a status that cannot be had, or says nothing, is asked for again, and after how many seconds."""

    delays: tuple[float, ...] = (1.0, 2.0, 4.0)


class Known(Struct, frozen=True, kw_only=True):
    """What an attempt knows so far. An id that is UNSET is not known; any other value is an id, 0 and "" too."""

    has_store: bool = True
    can_find: bool = False
    resubmits_unknown: bool = False
    patience: Patience = Patience()
    is_read: bool = False
    external_id: Any = UNSET
    is_noted: bool = False
    token: str | None = None
    # The token was made in this attempt, so that nobody can have used it yet.
    is_new_token: bool = False
    has_looked: bool = False
    verdict: Verdict | None = None
    error: Exception | None = None
    unanswered: int = 0
    must_wait: bool = False
    is_submitted: bool = False
    is_polled: bool = False
    result: Any = UNSET


class Read(Struct, frozen=True):
    """Read the token and the id of the last submission from the store."""


class NoteToken(Struct, frozen=True):
    """Make a token and store it, in the place of the last submission if there was one."""

    replaces: bool


class Find(Struct, frozen=True):
    """Look for the job of this token: it may have been submitted without being noted."""

    token: str


class Submit(Struct, frozen=True):
    """Submit the job."""

    token: str | None


class NoteId(Struct, frozen=True):
    """Store the job's id. None: the job has none, so there is nothing to come back to."""

    external_id: Any


class Ask(Struct, frozen=True):
    """Ask for the job's status."""

    external_id: Any


class Wait(Struct, frozen=True):
    """Let some time pass before the status is asked for again."""

    seconds: float


class Poll(Struct, frozen=True):
    """Wait for the end of the job."""

    external_id: Any


class Fetch(Struct, frozen=True):
    """Get the result of a job that succeeded."""

    external_id: Any


class GiveUp(Struct, frozen=True):
    """Fail this try and change nothing: by the error that the last question raised, or because no answer helps."""

    error: Exception | None


class Done(Struct, frozen=True):
    """There is nothing left to do."""

    result: Any


Step: TypeAlias = Read | NoteToken | Find | Submit | NoteId | Ask | Wait | Poll | Fetch | GiveUp | Done


def next_step(known: Known) -> Step:
    """The next thing to do."""
    if known.result is not UNSET:
        return Done(known.result)
    if known.has_store and not known.is_read:
        return Read()
    if known.is_submitted:
        return _after_submission(known)
    if known.external_id is not UNSET:
        return _about_a_job(known)
    return _before_submission(known)


def _before_submission(known: Known) -> Step:
    if known.has_store and known.token is None:
        return NoteToken(replaces=False)
    if known.token is not None and known.can_find and not known.is_new_token and not known.has_looked:
        return Find(known.token)
    return Submit(known.token)


def _after_submission(known: Known) -> Step:
    if known.has_store and not known.is_noted:
        return NoteId(known.external_id)
    return Fetch(known.external_id) if known.is_polled else Poll(known.external_id)


def _about_a_job(known: Known) -> Step:
    if not known.is_noted:
        return NoteId(known.external_id)
    if known.must_wait:
        return Wait(known.patience.delays[known.unanswered - 1])
    match known.verdict:
        case None:
            return GiveUp(known.error) if known.unanswered > len(known.patience.delays) else Ask(known.external_id)
        case Verdict.ACTIVE:
            return Fetch(known.external_id) if known.is_polled else Poll(known.external_id)
        case Verdict.SUCCEEDED:
            return Fetch(known.external_id)
        case Verdict.UNKNOWN if not known.resubmits_unknown:
            return GiveUp(None)
        case Verdict.FAILED | Verdict.UNKNOWN:
            return Submit(known.token) if known.is_new_token else NoteToken(replaces=True)


def learn(known: Known, step: Step, answer: Any) -> Known:
    """What is known after a step gave this answer."""
    match step:
        case Read():
            token, external_id = answer
            return _with(known, is_read=True, token=token, external_id=external_id, is_noted=external_id is not UNSET)
        case NoteToken():
            return _with(known, token=answer, is_new_token=True)
        case Find():
            # Only None means that there is none: 0 and "" are ids like any other.
            return _with(known, has_looked=True, external_id=UNSET if answer is None else answer)
        case Submit():
            return _with(known, is_submitted=True, is_noted=False, external_id=answer)
        case NoteId():
            return _with(known, is_noted=True)
        case Ask():
            return _heard(known, answer)
        case Wait():
            return _with(known, must_wait=False)
        case Poll():
            return _with(known, is_polled=True)
        case Fetch():
            return _with(known, result=answer)
        case GiveUp() | Done():
            return known


def _heard(known: Known, answer: Verdict | Exception) -> Known:
    error = answer if isinstance(answer, Exception) else None
    if error is None and answer is not Verdict.UNKNOWN:
        return _with(known, verdict=answer, error=None)
    unanswered = known.unanswered + 1
    if unanswered <= len(known.patience.delays):
        return _with(known, unanswered=unanswered, error=error, must_wait=True)
    verdict = Verdict.UNKNOWN if error is None else None
    return _with(known, unanswered=unanswered, error=error, verdict=verdict)


def _with(known: Known, **changes: Any) -> Known:
    return msgspec.structs.replace(known, **changes)


def decision(known: Known, step: Step) -> Decision | None:
    """What this step means for the attempt as a whole. None: nothing is decided by it."""
    match step:
        case Submit() if not known.has_store:
            return Decision.NO_STORE
        case Submit():
            return Decision.FRESH_SUBMIT if known.verdict is None else Decision.TERMINAL_RESUBMIT
        case Poll() if not known.is_submitted:
            return Decision.RECONNECT
        case Fetch() if known.verdict is Verdict.SUCCEEDED and not known.is_submitted:
            return Decision.ALREADY_SUCCEEDED
        case GiveUp():
            return Decision.UNKNOWN_STATUS
        case _:
            return None
