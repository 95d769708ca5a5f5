"""Does the steps by which an operator submits a job or finds it again, and tells what they come to.

The decisions are those of `model.resume`; a plain operator, an async one and one that defers share them.
"""

import importlib
import inspect
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec import UNSET

from stannel import telemetry
from stannel.model.ids import new_id
from stannel.model.resume import (
    Ask,
    Decision,
    Done,
    Fetch,
    Find,
    GiveUp,
    Known,
    NoteId,
    NoteToken,
    Patience,
    Poll,
    Read,
    Step,
    Submit,
    Verdict,
    Wait,
    decision,
    learn,
    next_step,
)
from stannel.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
)
from stannel.sdk.log import TASK_LOGGER
from stannel.sdk.state_store import NEVER_EXPIRE

_log = logging.getLogger(TASK_LOGGER)

# By these a task says how it ends; none of them means that a question could not be answered.
_FINAL = (AirflowFailException, AirflowSkipException, AirflowRescheduleException)
_COUNTERS = {
    Decision.NO_STORE: "fresh_submit",
    Decision.FRESH_SUBMIT: "fresh_submit",
    Decision.RECONNECT: "reconnect_attempt",
    Decision.ALREADY_SUCCEEDED: "already_succeeded",
    Decision.TERMINAL_RESUBMIT: "terminal_resubmit",
}


class JobStatusUnknown(AirflowException):
    """A job's status says neither that it runs nor that it ended, so nothing was submitted; the try fails."""

    def __init__(self, external_id: Any, status: str | None) -> None:
        super().__init__(
            f"The status {status!r} of the job {external_id!r} does not tell whether it still runs, and a second job "
            "is not submitted on a guess. The next try asks again; set resubmit_on_unknown = True to submit anew."
        )
        self.external_id, self.status = external_id, status


class Resumable(Protocol):
    """What is asked of an operator, and what it is told."""

    external_id_key: str
    resubmit_on_unknown: bool
    status_retry_delays: tuple[float, ...]
    durable: bool
    submission_token: str | None

    def submit_job(self, context: Any) -> Any: ...
    def get_job_status(self, external_id: Any, context: Any) -> str: ...
    def is_job_active(self, status: str) -> bool: ...
    def is_job_succeeded(self, status: str) -> bool: ...
    def is_job_failed(self, status: str) -> bool: ...
    def poll_until_complete(self, external_id: Any, context: Any) -> None: ...
    def get_job_result(self, external_id: Any, context: Any) -> Any: ...


class ResumableWork:
    """One attempt at the job of an operator: does the steps, and tells what they come to."""

    def __init__(self, operator: Resumable, context: Any) -> None:
        self._operator, self._context = operator, context
        self._store = store = _store_of(operator, context)
        self._status: str | None = None
        self._find: Callable[..., Any] | None = getattr(operator, "find_job", None)
        self.known = Known(
            has_store=store is not None,
            can_find=self._find is not None,
            resubmits_unknown=operator.resubmit_on_unknown,
            patience=Patience(tuple(operator.status_retry_delays)),
        )
        self._tags = {"operator": str(getattr(operator, "task_type", type(operator).__name__))}
        self._span: telemetry.Span | None = None
        self._decision: Decision | None = None

    # --- one step after the other -------------------------------------------------------------------------------------

    def next(self) -> Step:
        step = next_step(self.known)
        made = decision(self.known, step)
        if made is not None and self._decision is None:
            self._decide(made)
        return step

    def learn(self, step: Step, answer: Any) -> None:
        self.known = learn(self.known, step, answer)
        if isinstance(step, Poll) and self._decision is Decision.RECONNECT:
            self._count("reconnect_success")

    def do(self, step: Step) -> Any:
        """Do the step; an answer that is to be awaited is given as it is."""
        operator, context = self._operator, self._context
        match step:
            case Read():
                return self._read()
            case NoteToken(replaces):
                return self._note_token(replaces)
            case Find(token):
                return self._look(token)
            case Submit(token):
                return self._submit(token)
            case NoteId(external_id):
                return self._note_id(external_id)
            case Ask(external_id):
                return self._ask(external_id)
            case Wait(seconds):
                return time.sleep(seconds)
            case Poll(external_id):
                return operator.poll_until_complete(external_id, context)
            case Fetch(external_id):
                return operator.get_job_result(external_id, context)
            case GiveUp(error):
                raise error or JobStatusUnknown(self.known.external_id, self._status)
            case Done(result):
                return result

    async def ado(self, step: Step) -> Any:
        """Do the step, and await what is to be awaited."""
        asyncio: Any = importlib.import_module("asyncio")
        if isinstance(step, Wait):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Read | NoteToken | NoteId):
            # They ask the engine, which must not hold up other coroutines.
            return await asyncio.to_thread(self.do, step)
        if isinstance(step, Ask):
            return await self._aask(step.external_id)
        answer = self.do(step)
        return await answer if inspect.isawaitable(answer) else answer

    # --- the store ----------------------------------------------------------------------------------------------------

    @property
    def _keys(self) -> tuple[str, str]:
        key = self._operator.external_id_key
        return key, f"{key}/submission"

    def _read(self) -> tuple[str | None, Any]:
        id_key, token_key = self._keys
        external_id = self._store.get(id_key)
        intent = self._store.get(token_key)
        token = intent.get("token") if isinstance(intent, Mapping) else None
        self._use(token)
        return token, UNSET if external_id is None else external_id

    def _note_token(self, replaces: bool) -> str:
        id_key, token_key = self._keys
        if replaces:
            _log.warning(
                "The job %r ended with status %r; a new one is submitted",
                self.known.external_id,
                self._status,
            )
        token = new_token()
        intent = {"token": token, "try_number": getattr(self._context.get("ti"), "try_number", None)}
        self._replace(token_key, intent, [id_key] if replaces else [])
        self._use(token)
        return token

    def _replace(self, key: str, value: Any, remove: list[str]) -> None:
        if hasattr(self._store, "update"):
            self._store.update({key: value}, remove=remove, retention=NEVER_EXPIRE)
            return
        # A store of somebody's test knows the four plain methods only. Dying between them is harmless: the token is
        # there first, and nothing is submitted before both are done.
        self._store.set(key, value)
        for one in remove:
            self._store.delete(one)

    def _note_id(self, external_id: Any) -> None:
        id_key, token_key = self._keys
        if external_id is None:
            _log.warning("submit_job() gave no id, so this job cannot be found again; a retry submits another")
            self._store.delete(token_key)
            return
        # Never expires: it would be missed when a job takes longer, and it goes with its run anyway.
        self._store.set(id_key, external_id, retention=NEVER_EXPIRE)

    def _use(self, token: str | None) -> None:
        self._operator.submission_token = self._context["submission_token"] = token

    # --- the other system ---------------------------------------------------------------------------------------------

    def _submit(self, token: str | None) -> Any:
        if token is None:
            self._use(new_token())
        elif self._find is None and not self.known.is_new_token:
            _log.warning(
                "An earlier try may have submitted a job and died before its id was stored. %s has no find_job(), so "
                "a job is submitted now, with the same submission_token %s; there may be two.",
                type(self._operator).__name__,
                token,
            )
        return self._operator.submit_job(self._context)

    def _look(self, token: str) -> Any:
        assert self._find is not None
        _log.info("An earlier try may have submitted a job; looking for the one with the token %s", token)
        return self._find(token, self._context)

    def _ask(self, external_id: Any) -> Any:
        try:
            status = self._operator.get_job_status(external_id, self._context)
        except _FINAL:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the other system's client raises
            return self._unanswered(external_id, error)
        return status if inspect.isawaitable(status) else self._judged(status)

    async def _aask(self, external_id: Any) -> Any:
        answer = self._ask(external_id)
        if not inspect.isawaitable(answer):
            return answer
        try:
            status = await answer
        except _FINAL:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the other system's client raises
            return self._unanswered(external_id, error)
        return self._judged(status)

    def _judged(self, status: str) -> Verdict:
        operator = self._operator
        self._status = status
        if self._span is not None:
            self._span.set_attribute("resumable.prior_status", str(status))
        if operator.is_job_active(status):
            return Verdict.ACTIVE
        if operator.is_job_succeeded(status):
            return Verdict.SUCCEEDED
        return Verdict.FAILED if operator.is_job_failed(status) else Verdict.UNKNOWN

    def _unanswered(self, external_id: Any, error: Exception) -> Exception:
        _log.warning("The status of the job %r cannot be had: %s: %s", external_id, type(error).__name__, error)
        return error

    # --- what others are told -----------------------------------------------------------------------------------------

    @contextmanager
    def watched(self) -> Iterator[None]:
        attributes = {**self._tags, "resumable.external_id_key": self._operator.external_id_key}
        with telemetry.span("resumable_job.resume_decision", attributes) as span:
            self._span = span
            yield

    def _decide(self, made: Decision) -> None:
        self._decision = made
        if self._span is not None:
            self._span.set_attribute("resumable.decision", made.value)
            if self.known.external_id is not UNSET:
                self._span.set_attribute("resumable.external_id", str(self.known.external_id))
        if made is Decision.RECONNECT:
            _log.info("Reconnecting to the job %r", self.known.external_id)
        elif made is Decision.ALREADY_SUCCEEDED:
            _log.info("The job %r has succeeded already", self.known.external_id)
        if made in _COUNTERS and self._operator.durable:
            self._count(_COUNTERS[made])

    def _count(self, what: str) -> None:
        telemetry.count(f"resumable_job.{what}", self._tags)


def new_token() -> str:
    """A name for a submission: unique, and short enough for any label or application name."""
    return f"stannel-{new_id()}"


def _store_of(operator: Resumable, context: Any) -> Any:
    """Where to remember the job. None: nowhere, each try submits anew."""
    if not operator.durable:
        return None
    store = context.get("task_state_store")
    if store is None:
        _log.warning("There is no task_state_store; crash recovery is disabled for this run")
    return store


def not_awaitable(step: Step, answer: Any) -> Any:
    """The answer, unless it has to be awaited first."""
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(f"a method gave something to await ({type(step).__name__}); use aexecute_resumable() instead")
    return answer
