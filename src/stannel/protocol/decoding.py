"""Reads message bodies liberally, and when one cannot be read says which message and which field is to blame."""

import re
from datetime import datetime, timedelta
from functools import cache
from typing import Any, get_args

import msgspec
from msgspec import Raw, Struct, structs

from stannel.protocol.data import JsonMap, Message
from stannel.protocol.errors import NotJson
from stannel.protocol.replies import Reply
from stannel.protocol.requests import Request
from stannel.protocol.schema import ensure_json

# Everything msgspec raises for bytes that are not what was asked for: its own errors and bad text are ValueErrors.
UNREADABLE = (ValueError, TypeError, OverflowError, RecursionError)

_REQUEST_TYPES: dict[str, type[Message]] = {kind.__name__: kind for kind in get_args(Request)}
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)
_fields = msgspec.msgpack.Decoder(dict[str, Raw])
_anything = msgspec.msgpack.Decoder()

NIL = Raw(b"\xc0")
_LONG_FRACTION = re.compile(rb"[.,]\d{7}")
_BLAMED = re.compile(r"(?:required field `(?P<missing>[^`]+)`)?(?: - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`)?\Z")


class Unreadable(Exception):
    """A body that cannot be taken as a message. `detail` is what its sender is told; nothing was done."""

    def __init__(self, reason: str, message_type: str | None = None, field: str | None = None) -> None:
        self.detail: JsonMap = {"message": f"{reason}; nothing was done", "message_type": message_type, "field": field}
        super().__init__(self.detail["message"])


def decode_request(body: Raw) -> Request:
    """The request in `body`, its free-form values made JSON; `Unreadable` names the field that is in the way."""
    try:
        request = _requests.decode(body)
    except UNREADABLE as error:
        request = _read_again(body, error)
    plan = _plan(type(request))
    # The decoder rounds to microseconds, and a moment rounded up would lie in the future.
    if plan.instants and _LONG_FRACTION.search(body):
        request = _repaired(body, type(request))
    return _with_json_values(request, plan.values) if plan.values else request


def decode_reply(body: Raw) -> Reply:
    """The reply in `body`, or `Unreadable`."""
    try:
        return _replies.decode(body)
    except UNREADABLE as error:
        raise Unreadable(f"a reply cannot be read: {_reason(error)}") from error


class _Plan(Struct, frozen=True):
    """Which fields of a request need more care than the decoder takes."""

    instants: tuple[str, ...]
    durations: tuple[str, ...]
    values: tuple[str, ...]


@cache
def _plan(kind: type[Message]) -> _Plan:
    leaves = {field.name: _leaves(field.type) for field in structs.fields(kind)}

    def holding(wanted: object) -> tuple[str, ...]:
        return tuple(name for name, found in leaves.items() if wanted in found)

    return _Plan(instants=holding(datetime), durations=holding(timedelta), values=holding(Any))


def _leaves(hint: Any) -> list[Any]:
    inner = get_args(hint)
    return [leaf for part in inner for leaf in _leaves(part)] if inner else [hint]


def _with_json_values(request: Request, names: tuple[str, ...]) -> Request:
    for name in names:
        value = getattr(request, name)
        try:
            kept = ensure_json(value)
        except (NotJson, RecursionError) as error:
            kind = type(request).__name__
            reason = str(error) if isinstance(error, NotJson) else _reason(error)
            raise Unreadable(f"{kind}.{name} cannot be accepted: {reason}", kind, name) from error
        if kept is not value:
            request = structs.replace(request, **{name: kept})
    return request


def _read_again(body: Raw, error: Exception) -> Request:
    """What the strict decoder refused may still be legal: a moment without seconds, a duration in seconds."""
    fields = _fields_of(body)
    kind = _kind_of(fields)
    plan = _plan(kind)
    if isinstance(error, msgspec.ValidationError) and (plan.instants or plan.durations):
        repaired: Request = _repaired(body, kind)
        return repaired
    raise _blame(kind, fields, error) from error


def _fields_of(body: Raw) -> dict[str, Raw]:
    if body == NIL:
        raise Unreadable("the request has no body")
    try:
        return _fields.decode(body)
    except UNREADABLE as error:
        raise Unreadable(f"the request body is not a map with text keys: {_reason(error)}") from error


def _kind_of(fields: dict[str, Raw]) -> type[Message]:
    if "type" not in fields:
        raise Unreadable("the request does not say what it is: field `type` is missing", None, "type")
    try:
        name = _anything.decode(fields["type"])
    except UNREADABLE as error:
        raise Unreadable(f"the request's `type` cannot be read: {_reason(error)}", None, "type") from error
    if not isinstance(name, str):
        raise Unreadable("the request's `type` is not text", None, "type")
    if name not in _REQUEST_TYPES:
        raise Unreadable(f"message type {name[:100]!r} is not known to this engine", name[:100], "type")
    return _REQUEST_TYPES[name]


def _repaired(body: Raw, kind: type[Message]) -> Any:
    plan = _plan(kind)
    try:
        values = _anything.decode(body)
        for names, repair in ((plan.instants, _instant), (plan.durations, _duration)):
            values.update({name: repair(values[name]) for name in names if name in values})
        return msgspec.convert(values, kind)
    except UNREADABLE as error:
        raise _blame(kind, _fields_of(body), error) from error


def _instant(value: Any) -> Any:
    if isinstance(value, list):
        return [_instant(item) for item in value]
    if not isinstance(value, str):
        return value
    # What stays text, or has no offset, is refused afterwards under the name of its field.
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return value


def _duration(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    try:
        return timedelta(seconds=value)
    except (ValueError, OverflowError):
        return value


def _blame(kind: type[Message], fields: dict[str, Raw], error: Exception) -> Unreadable:
    name = kind.__name__
    field = _blamed_field(str(error)) if isinstance(error, msgspec.ValidationError) else _first_unreadable(fields)
    what = f"{name}.{field}" if field else name
    return Unreadable(f"{what} cannot be accepted: {_reason(error)}", name, field)


def _blamed_field(text: str) -> str | None:
    found = _BLAMED.search(text)
    if found is None:
        return None
    return ".".join(filter(None, (found["path"], found["missing"]))) or None


def _first_unreadable(fields: dict[str, Raw]) -> str | None:
    for name, raw in fields.items():
        try:
            _anything.decode(raw)
        except UNREADABLE:
            return name
    return None


def _reason(error: BaseException) -> str:
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case UnicodeError():
            return "it holds text that is not valid UTF-8"
        case _:
            return str(error)
