"""What both ends must agree on: schema versions, the closed set of error codes, and what counts as a JSON value."""

from datetime import datetime
from enum import StrEnum
from math import isfinite
from typing import Any

from stannel.protocol.errors import NotJson, UnknownSchema


class SchemaVersion(StrEnum):
    """The dated message schemas this engine speaks. Later ones sort after earlier ones."""

    JUNE_2026 = "2026-06-16"
    OCTOBER_2026 = "2026-10-30"


LATEST_SCHEMA = SchemaVersion.OCTOBER_2026


def known_schema(declared: object) -> SchemaVersion:
    """The version a bundle declares, if this engine speaks it; it may have been parsed from anything."""
    for version in SchemaVersion:
        if version == declared:
            return version
    raise UnknownSchema(declared, tuple(SchemaVersion))


class ErrorCode(StrEnum):
    """Every code an error reply may carry; runtimes with a closed enum fail on any other."""

    CONNECTION_NOT_FOUND = "CONNECTION_NOT_FOUND"
    VARIABLE_NOT_FOUND = "VARIABLE_NOT_FOUND"
    XCOM_NOT_FOUND = "XCOM_NOT_FOUND"
    ASSET_NOT_FOUND = "ASSET_NOT_FOUND"
    TASK_STORE_NOT_FOUND = "TASK_STORE_NOT_FOUND"
    ASSET_STORE_NOT_FOUND = "ASSET_STORE_NOT_FOUND"
    DAGRUN_ALREADY_EXISTS = "DAGRUN_ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    API_SERVER_ERROR = "API_SERVER_ERROR"
    GENERIC_ERROR = "GENERIC_ERROR"


# Deep enough for any honest document, shallow enough for every reader of it (JSON parsers, databases, browsers).
DEEPEST = 200

_AS_IS = frozenset({str, bool, type(None)})
_SMALLEST_INT, _LARGEST_INT = -(2**63), 2**64 - 1


def ensure_json(value: Any, limit: int = DEEPEST) -> Any:
    """The value as JSON can keep it, nested at most `limit` deep; `NotJson` says what is in the way.

    Moments become ISO-8601 text and tuples become lists. Bytes, NaN, infinities, integers beyond 64 bits, keys that
    are not text and any other object are refused. The value is copied only where something had to change.
    """
    return _ensure(value, limit, limit)


def _ensure(value: Any, room: int, limit: int) -> Any:
    if type(value) in _AS_IS:
        return value
    if not isinstance(value, dict | list | tuple):
        return _ensure_scalar(value)
    if room <= 0:
        raise NotJson(f"is nested more than {limit} levels deep")
    return _ensure_map(value, room - 1, limit) if isinstance(value, dict) else _ensure_list(value, room - 1, limit)


def _ensure_list(value: list[Any] | tuple[Any, ...], room: int, limit: int) -> list[Any]:
    result = value if isinstance(value, list) else list(value)
    copied = result is not value
    for index, item in enumerate(value):
        if type(item) in _AS_IS:
            continue
        try:
            kept = _ensure(item, room, limit)
        except NotJson as error:
            error.path.insert(0, index)
            raise
        if kept is not item:
            if not copied:
                result, copied = list(value), True
            result[index] = kept
    return result


def _ensure_map(value: dict[Any, Any], room: int, limit: int) -> dict[str, Any]:
    result = value
    for key, item in value.items():
        if type(key) is not str:
            raise NotJson(f"has a key of type {type(key).__name__}, but keys must be plain text")
        if type(item) in _AS_IS:
            continue
        try:
            kept = _ensure(item, room, limit)
        except NotJson as error:
            error.path.insert(0, key)
            raise
        if kept is not item:
            if result is value:
                result = dict(value)
            result[key] = kept
    return result


def _ensure_scalar(value: Any) -> Any:
    if isinstance(value, int):
        if not _SMALLEST_INT <= value <= _LARGEST_INT:
            raise NotJson("is an integer that does not fit in 64 bits; send it as text")
        return value if type(value) is int else int(value)
    if isinstance(value, float):
        if not isfinite(value):
            raise NotJson(f"is {float(value)}, which JSON cannot express; send null or text")
        return value if type(value) is float else float(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise NotJson("is bytes, which JSON cannot express; encode it as text, for example base64")
    raise NotJson(f"is of type {type(value).__name__}, which JSON cannot express; return plain data instead")
