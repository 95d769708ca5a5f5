"""Both ends of the conversation as pure state: bytes in, events out; messages in, bytes out.

The supervisor speaks first (`greet`), then answers every request exactly once, in order, with the id it came with.
Broken framing ends the conversation (`ProtocolBroken`); a request that cannot be understood does not: it becomes
`Malformed` and is answered with `refuse`, because a runtime that gets no answer may wait for ever.
"""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from stannel.protocol.data import JsonMap
from stannel.protocol.decoding import NIL, UNREADABLE, Unreadable, decode_reply, decode_request
from stannel.protocol.errors import GreetingRefused, ProtocolBroken, Unsendable
from stannel.protocol.frames import DEFAULT_FRAME_LIMIT, Frames, encode_frame
from stannel.protocol.replies import ErrorResponse, Reply, StartupDetails
from stannel.protocol.requests import Request
from stannel.protocol.schema import LATEST_SCHEMA, ErrorCode, SchemaVersion, known_schema

_GREETING_ID = 0

_encoder = msgspec.msgpack.Encoder()
_envelope = msgspec.msgpack.Decoder(list[Raw])
_integer = msgspec.msgpack.Decoder(int)
_map = msgspec.msgpack.Decoder(dict[str, Any])
_usual_answer = msgspec.msgpack.Decoder(tuple[int, Reply | None, ErrorResponse | None])


class Received(Struct, frozen=True):
    """A request to be answered with `reply`, `not_found` or `refuse`, under the same id."""

    id: int
    request: Request


class Malformed(Struct, frozen=True):
    """A request nobody can act on; answer it with `refuse(id, ErrorCode.GENERIC_ERROR, detail)`."""

    id: int
    detail: JsonMap


class Reported(Struct, frozen=True):
    """The runtime says it cannot follow the protocol: the attempt is lost, and this is why. Not to be answered."""

    id: int
    error: str
    detail: Any


class Answered(Struct, frozen=True):
    """What came back for a request. `error` is set wherever on the wire the supervisor put it; then `body` is None."""

    id: int
    body: Reply | None
    error: ErrorResponse | None


Event: TypeAlias = Received | Malformed | Reported


class SupervisorSession:
    """The engine's end: greets one task process and answers it."""

    def __init__(self, schema_version: str = LATEST_SCHEMA, frame_limit: int = DEFAULT_FRAME_LIMIT) -> None:
        self.schema_version: Final = known_schema(schema_version)
        self._limit = frame_limit
        self._frames = Frames(frame_limit)
        self._broken: ProtocolBroken | None = None

    @property
    def at_boundary(self) -> bool:
        """False: an end of file now would cut a request off; it counts as never sent."""
        return self._frames.at_boundary

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Event]:
        """Take in `data` at once; iterate for what the runtime said. Raises `ProtocolBroken`, then for ever."""
        return self._events(self._frames.feed(data))

    def greet(self, startup: StartupDetails) -> bytes:
        """The one unsolicited frame, shaped for the runtime's schema."""
        return _frame((_GREETING_ID, _shaped(startup, self.schema_version), None), "StartupDetails", self._limit)

    def reply(self, request_id: int, body: Reply | None = None) -> bytes:
        """The answer to a request; without a body, the acknowledgement that terminal messages and writes wait for.

        A body that cannot be sent becomes an error reply, so that no request stays unanswered.
        """
        try:
            return _frame((request_id, body, None), type(body).__name__, self._limit)
        except Unsendable as error:
            return self.refuse(request_id, ErrorCode.GENERIC_ERROR, {"message": str(error)})

    def refuse(self, request_id: int, code: ErrorCode, detail: JsonMap | None = None) -> bytes:
        """An error in the error slot: the request failed or was not understood."""
        try:
            return _frame((request_id, None, ErrorResponse(code, detail)), "ErrorResponse", self._limit)
        except Unsendable as error:
            return encode_frame(_encoder.encode((request_id, None, ErrorResponse(code, {"message": str(error)}))))

    def not_found(self, request_id: int, code: ErrorCode, detail: JsonMap | None = None) -> bytes:
        """An error in the body slot: an expected outcome, such as a variable that does not exist."""
        return self.reply(request_id, ErrorResponse(code, detail))

    def _events(self, payloads: Iterator[bytes]) -> Iterator[Event]:
        if self._broken is not None:
            raise self._broken
        try:
            for payload in payloads:
                yield _heard(payload)
        except ProtocolBroken as error:
            self._broken = error
            raise


class RuntimeSession:
    """The task's end: reads one greeting, then asks and is answered."""

    def __init__(self, frame_limit: int = DEFAULT_FRAME_LIMIT) -> None:
        self._limit = frame_limit
        self._frames = Frames(frame_limit)
        self._next_id = 0

    @property
    def at_boundary(self) -> bool:
        """False: an end of file now would cut a reply off."""
        return self._frames.at_boundary

    def read_greeting(self, data: bytes | bytearray | memoryview) -> StartupDetails | None:
        """Feed bytes until the greeting is whole; None: more are needed. Anything but a greeting is refused."""
        for payload in self._frames.feed(data):
            return _greeting(_answer(payload))
        return None

    def request(self, body: Request) -> tuple[int, bytes]:
        """The id under which the answer will come, and the frame to send. `Unsendable`: nothing was counted."""
        request_id = self._next_id
        frame = _frame((request_id, body), type(body).__name__, self._limit)
        self._next_id += 1
        return request_id, frame

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Answered]:
        """Take in `data` at once; iterate for the answers it completed. An unreadable answer is an error of its own."""
        return map(_answer, self._frames.feed(data))


def _shaped(startup: StartupDetails, version: SchemaVersion) -> StartupDetails:
    context = startup.ti_context
    if version >= SchemaVersion.OCTOBER_2026 or context.arg_bindings is UNSET:
        return startup
    return structs.replace(startup, ti_context=structs.replace(context, arg_bindings=UNSET))


def _heard(payload: bytes) -> Event:
    request_id, parts = _opened(payload)
    if len(parts) < 2:
        return Malformed(request_id, Unreadable("the request cannot be accepted: it is nested too deeply").detail)
    try:
        return Received(request_id, decode_request(parts[1]))
    except Unreadable as error:
        report = _reported(request_id, parts)
        return report or Malformed(request_id, error.detail)


def _reported(request_id: int, parts: list[Raw]) -> Reported | None:
    if len(parts) < 3 or parts[1] != NIL:
        return None
    try:
        report = _map.decode(parts[2])
    except UNREADABLE:
        return None
    return Reported(request_id, str(report["error"]), report.get("detail")) if "error" in report else None


def _answer(payload: bytes) -> Answered:
    try:
        request_id, body, error = _usual_answer.decode(payload)
    except UNREADABLE:
        return _unusual_answer(payload)
    if error is not None:
        return Answered(request_id, None, error)
    if isinstance(body, ErrorResponse):
        return Answered(request_id, None, body)
    return Answered(request_id, body, None)


def _unusual_answer(payload: bytes) -> Answered:
    """An answer in another shape, or one that cannot be read, taken apart to say what is wrong with it."""
    request_id, parts = _opened(payload)
    if len(parts) < 2:
        return _unreadable_answer(request_id, "it is nested too deeply")
    try:
        error = decode_reply(parts[2]) if len(parts) > 2 and parts[2] != NIL else None
        body = decode_reply(parts[1]) if error is None and parts[1] != NIL else None
    except Unreadable as problem:
        return _unreadable_answer(request_id, str(problem))
    found = error or body
    if isinstance(found, ErrorResponse):
        return Answered(request_id, None, found)
    if error is not None:
        return _unreadable_answer(request_id, f"{type(error).__name__} stands where only an error may")
    return Answered(request_id, body, None)


def _unreadable_answer(request_id: int, reason: str) -> Answered:
    return Answered(
        request_id, None, ErrorResponse(ErrorCode.GENERIC_ERROR, {"message": f"the answer cannot be used: {reason}"})
    )


def _greeting(answer: Answered) -> StartupDetails:
    if answer.error is not None:
        raise GreetingRefused(f"it is an error, {answer.error.error}", answer.error.detail)
    if not isinstance(answer.body, StartupDetails):
        raise GreetingRefused("it holds no StartupDetails")
    return answer.body


def _opened(payload: bytes) -> tuple[int, list[Raw]]:
    """The id and all elements of a frame; no elements at all: the frame is nested too deeply to be taken apart."""
    try:
        parts = _envelope.decode(payload)
    except RecursionError:
        return _leading_id(payload), []
    except UNREADABLE as error:
        raise ProtocolBroken(f"a frame is not exactly one MessagePack array ({error})") from error
    if len(parts) < 2:
        raise ProtocolBroken(f"a frame has {len(parts)} elements where an id and a body are needed")
    return _id(parts[0]), parts


def _id(raw: Raw | bytes) -> int:
    try:
        return _integer.decode(raw)
    except UNREADABLE as error:
        raise ProtocolBroken(f"a frame has an id that is not an integer ({error})") from error


def _leading_id(payload: bytes) -> int:
    start = {0xDC: 3, 0xDD: 5}.get(payload[0], 1)
    widths = {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}
    return _id(payload[start : start + widths.get(payload[start], 1)])


def _frame(parts: tuple[Any, ...], name: str, limit: int) -> bytes:
    try:
        payload = _encoder.encode(parts)
    except UNREADABLE as error:
        raise Unsendable(name, str(error)) from error
    return encode_frame(payload, limit, name)
