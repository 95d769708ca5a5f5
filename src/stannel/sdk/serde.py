"""How values travel between tasks: JSON, with tags for the Python types that JSON lacks.

A tagged value is `{"__classname__": name, "__version__": 1, "__data__": data}`. Tags exist for datetime, date, time,
timedelta, tuple, set, frozenset, bytes, Decimal, UUID, paths, dataclasses, whole numbers beyond 64 bits, NaN and
infinities, and dicts whose keys are not all text. Members of enums become their values.
"""

import base64
import dataclasses
import importlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from stannel.errors import NotSerializable

CLASS, VERSION, DATA = "__classname__", "__version__", "__data__"
_LEAST, _MOST = -(2**63), 2**64 - 1
_PLAIN = frozenset({str, bool, type(None)})


class _Unfit(Exception):
    """Carries the path to what cannot travel, innermost step first."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.steps: list[str] = []


def encode(value: Any, what: str = "the value") -> Any:
    """The value as JSON; `NotSerializable` names the place inside it that cannot travel."""
    try:
        return _encode(value)
    except _Unfit as error:
        place = "".join(reversed(error.steps))
        raise NotSerializable(f"{what}{' at ' + place if place else ''}", error.reason) from None
    except RecursionError:
        raise NotSerializable(what, "it contains itself or is nested too deeply") from None


def _encode(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if _LEAST <= value <= _MOST else _tagged("builtins.int", str(value))
    if kind is float:
        return value if math.isfinite(value) else _tagged("builtins.float", repr(value))
    if kind is dict:
        return _encode_dict(value)
    if kind is list:
        return _encode_items(value)
    encoder = _ENCODERS.get(kind)
    return encoder(value) if encoder is not None else _encode_relative(value)


def _encode_dict(value: Mapping[Any, Any]) -> Any:
    if CLASS in value or not all(type(key) is str for key in value):
        return _tagged("builtins.dict", [[_encode(key), _at(f"[{key!r}]", item)] for key, item in value.items()])
    return {key: item if type(item) in _PLAIN else _at(f"[{key!r}]", item) for key, item in value.items()}


def _encode_items(value: Sequence[Any]) -> list[Any]:
    return [item if type(item) in _PLAIN else _at(f"[{place}]", item) for place, item in enumerate(value)]


def _at(step: str, item: Any) -> Any:
    try:
        return _encode(item)
    except _Unfit as error:
        error.steps.append(step)
        raise


def _tagged(name: str, data: Any) -> dict[str, Any]:
    return {CLASS: name, VERSION: 1, DATA: data}


def _encode_relative(value: Any) -> Any:
    """Subclasses of known types, and classes that describe themselves."""
    if isinstance(value, Enum):
        return _encode(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return _tagged(_name_of(type(value)), {name: _at(f".{name}", item) for name, item in fields.items()})
    for base in (str, int, float):
        if isinstance(value, base):
            return _encode(base(value))
    for known, encoder in _ENCODERS.items():
        if isinstance(value, known):
            return encoder(value)
    if isinstance(value, Mapping):
        return _encode_dict(value)
    if isinstance(value, list) or hasattr(value, "is_xcom_sequence"):
        return _encode_items(list(value))
    raise _Unfit(f"it is of type {type(value).__module__}.{type(value).__qualname__}")


def _name_of(kind: type) -> str:
    if "<locals>" in kind.__qualname__:
        raise _Unfit(f"the class {kind.__qualname__} is defined inside a function and cannot be found again")
    return f"{kind.__module__}:{kind.__qualname__}"


_ENCODERS: dict[type, Callable[[Any], Any]] = {
    datetime: lambda value: _tagged("datetime.datetime", _moment_text(value)),
    date: lambda value: _tagged("datetime.date", value.isoformat()),
    time: lambda value: _tagged("datetime.time", value.isoformat()),
    timedelta: lambda value: _tagged("datetime.timedelta", [value.days, value.seconds, value.microseconds]),
    tuple: lambda value: _tagged("builtins.tuple", _encode_items(value)),
    set: lambda value: _tagged("builtins.set", _encode_items(_in_order(value))),
    frozenset: lambda value: _tagged("builtins.frozenset", _encode_items(_in_order(value))),
    bytes: lambda value: _tagged("builtins.bytes", base64.b64encode(value).decode()),
    Decimal: lambda value: _tagged("decimal.Decimal", str(value)),
    UUID: lambda value: _tagged("uuid.UUID", str(value)),
    PurePath: lambda value: _tagged("pathlib.Path", str(value)),
}


def _in_order(value: Any) -> list[Any]:
    return sorted(value, key=lambda item: (type(item).__name__, repr(item)))


def _moment_text(value: datetime) -> Any:
    zone = getattr(value.tzinfo, "key", None)
    # The offset alone would lose the zone's rules, the zone alone which of two equal wall clock times is meant.
    return value.isoformat() if zone is None else [value.isoformat(), zone]


def decode(value: Any) -> Any:
    """The value `encode` was given. A dataclass whose module cannot be imported here is an error that names it."""
    if type(value) is dict:
        if CLASS in value:
            return _decode_tagged(value)
        return {key: decode(item) for key, item in value.items()}
    if type(value) is list:
        return [decode(item) for item in value]
    return value


def _decode_tagged(value: dict[str, Any]) -> Any:
    name, data = value[CLASS], value.get(DATA)
    decoder = _DECODERS.get(name)
    return decoder(data) if decoder is not None else _decode_dataclass(name, data)


def _decode_dataclass(name: Any, data: Any) -> Any:
    module_name, _, path = str(name).partition(":")
    try:
        found: Any = sys.modules.get(module_name) or importlib.import_module(module_name)
        for step in path.split("."):
            found = getattr(found, step)
    except (ImportError, AttributeError, ValueError):
        raise NotSerializable(f"a value of class {name}", "the class cannot be imported where it is read") from None
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise NotSerializable(f"a value of class {name}", "the class is not a dataclass")
    made = object.__new__(found)
    for field, item in data.items():
        object.__setattr__(made, field, decode(item))
    return made


def _decode_moment(data: Any) -> datetime:
    if isinstance(data, str):
        return datetime.fromisoformat(data)
    text, zone = data
    return datetime.fromisoformat(text).astimezone(ZoneInfo(zone))


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "builtins.int": int,
    "builtins.float": float,
    "builtins.dict": lambda data: {decode(key): decode(item) for key, item in data},
    "builtins.tuple": lambda data: tuple(decode(data)),
    "builtins.set": lambda data: set(decode(data)),
    "builtins.frozenset": lambda data: frozenset(decode(data)),
    "builtins.bytes": base64.b64decode,
    "datetime.datetime": _decode_moment,
    "datetime.date": date.fromisoformat,
    "datetime.time": time.fromisoformat,
    "datetime.timedelta": lambda data: timedelta(*data),
    "decimal.Decimal": Decimal,
    "uuid.UUID": UUID,
    "pathlib.Path": Path,
}
