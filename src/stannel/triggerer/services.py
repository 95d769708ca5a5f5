"""Answers what triggers ask, with the same answers tasks get, on threads of their own."""

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import msgspec
from msgspec import Raw

from stannel.errors import StannelError
from stannel.execution.answers import answer
from stannel.execution.greeting import greeting
from stannel.model.masking import SecretMask
from stannel.model.run import Attempt, Run, RunType
from stannel.model.states import RunState
from stannel.protocol.decoding import NIL, Unreadable, decode_request
from stannel.protocol.refusal import Refused
from stannel.protocol.replies import ConnectionResult, ErrorResponse, Reply, VariableResult
from stannel.protocol.requests import MaskSecret, Request, Terminal
from stannel.protocol.schema import ErrorCode
from stannel.protocol.triggering import Answer, Ask
from stannel.store import Store

log = logging.getLogger(__name__)

_THREADS = 2
_encode = msgspec.msgpack.Encoder().encode
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
# Whoever asks without a task behind it can ask about everything but itself.
_NOBODY = Attempt(
    attempt_id="",
    ti_pk=0,
    run=Run(
        pk=0, dag_id="", run_id="", run_type=RunType.MANUAL, state=RunState.RUNNING, version="", run_after=_LONG_AGO
    ),
    task_id="",
    map_index=-1,
    try_number=0,
    max_tries=0,
    queue="",
    fileloc="",
    start_date=_LONG_AGO,
)


class Services:
    """The desk for triggers. Every question gets an answer, and secrets that are given away are masked from then on."""

    def __init__(self, store: Store, *, hostname: str, xcom_limit: int) -> None:
        self._store, self._hostname, self._xcom_limit = store, hostname, xcom_limit
        self.threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="trigger-answer")

    def answer(self, ask: Ask, mask: SecretMask, now: datetime) -> Answer:
        """The answer to a question. Called on a thread."""
        try:
            reply = self._reply(decode_request(ask.body), ask.trigger_id, mask, now)
            return Answer(ask.id, NIL if reply is None else Raw(_encode(reply)), NIL)
        except Unreadable as error:
            return _refusal(ask.id, ErrorCode.GENERIC_ERROR, error.detail)
        except Refused as refusal:
            said = Raw(_encode(ErrorResponse(refusal.code, refusal.detail)))
            return Answer(ask.id, said, NIL) if refusal.in_body else Answer(ask.id, NIL, said)
        except StannelError as error:
            return _refusal(ask.id, ErrorCode.API_SERVER_ERROR, {"status_code": 500, "message": str(error)})
        except Exception as error:
            log.exception("What trigger %s asked could not be answered", ask.trigger_id)
            message = f"{type(error).__name__}: {error}"
            return _refusal(ask.id, ErrorCode.API_SERVER_ERROR, {"status_code": 500, "message": message})

    def startup(self, trigger_id: int, now: datetime) -> bytes | None:
        """The greeting of the task that waits, for a trigger whose arguments hold templates. None: it is gone."""
        attempt = self._store.triggers.attempt_of(trigger_id, now=now)
        return None if attempt is None else _encode(greeting(attempt, hostname=self._hostname))

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)

    def _reply(self, request: Request, trigger_id: int | None, mask: SecretMask, now: datetime) -> Reply | None:
        if isinstance(request, Terminal):
            message = f"{type(request).__name__} is for tasks; a trigger ends by an event"
            raise Refused(ErrorCode.GENERIC_ERROR, {"message": message})
        if isinstance(request, MaskSecret):
            mask.add(request.value, request.name)
            return None
        attempt = None if trigger_id is None else self._store.triggers.attempt_of(trigger_id, now=now)
        reply = answer(self._store, attempt or _NOBODY, request, xcom_limit=self._xcom_limit)
        _keep_secret(reply, mask)
        return reply


def _refusal(ask_id: int, code: ErrorCode, detail: dict[str, object]) -> Answer:
    return Answer(ask_id, NIL, Raw(_encode(ErrorResponse(code, detail))))


def _keep_secret(reply: Reply | None, mask: SecretMask) -> None:
    match reply:
        case ConnectionResult(password=password, extra=extra):
            mask.add(password)
            if extra:
                mask.add(_fields_of(extra), "extra")
        case VariableResult(key, value):
            mask.add(value, key)
        case _:
            return


def _fields_of(extra: str) -> object:
    try:
        return msgspec.json.decode(extra)
    except msgspec.DecodeError:
        return {"secret": extra}
