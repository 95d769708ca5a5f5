"""Turns what somebody wrote, in a file or as text, into the type a setting declares; anything else is a ValueError."""

import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from zoneinfo import ZoneInfo

import msgspec

from stannel.settings.secret import Secret

_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    Secret: "text",
    ZoneInfo: "the name of a time zone",
}


def from_text(text: str, kind: Any) -> Any:
    """Read a value that could only be written as text, such as an environment variable."""
    base = _base(kind)
    if _is_optional(base):
        return None if text.strip().lower() in ("", "none") else from_text(text, get_args(base)[0])
    if base in (str, Path, Secret, ZoneInfo) or get_origin(base) is Literal:
        return from_data(text, kind)
    return from_data(_PARSERS[get_origin(base) or base](text.strip()), kind)


def from_data(value: Any, kind: Any) -> Any:
    """Check a value that has a type of its own, as in a TOML file; lists and tables may also be written as text."""
    base = _base(kind)
    if isinstance(value, str):
        if _is_optional(base) and not value:
            return None
        if get_origin(base) in (tuple, dict):
            return from_text(value, kind)
        if get_origin(base) is Literal:
            value = _as_declared(value, get_args(base))
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    return msgspec.convert(value, kind, dec_hook=_from_str)


def expected(kind: Any) -> str:
    """What a setting of this type has to be, as the end of a sentence."""
    base = _base(kind)
    if _is_optional(base):
        return f"{expected(get_args(base)[0])}, or empty"
    if get_origin(base) is Literal:
        return f"one of {', '.join(get_args(base))}"
    if get_origin(base) is tuple:
        return "a list of texts"
    if get_origin(base) is dict:
        return "a table"
    return _NAMES[base] + _bounds(kind)


def _bounds(kind: Any) -> str:
    for meta in getattr(kind, "__metadata__", ()):
        if meta.ge is not None:
            return f" of at least {meta.ge}"
        if meta.gt is not None:
            return f" above {meta.gt}"
    return ""


def _base(kind: Any) -> Any:
    return kind.__origin__ if get_origin(kind) is Annotated else kind


def _is_optional(base: Any) -> bool:
    return get_origin(base) in (Union, UnionType)


def _from_str(kind: type, value: Any) -> Any:
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    if kind is ZoneInfo:
        return _zone(value)
    return Path(value).expanduser() if kind is Path else kind(value)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo("UTC" if name.lower() == "utc" else name)
    except (KeyError, OSError) as error:
        raise ValueError(f"there is no time zone {name!r}") from error


def _as_declared(value: str, choices: tuple[str, ...]) -> str:
    return next((choice for choice in choices if choice.lower() == value.lower()), value)


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError(f"{text!r} is neither true nor false")
    return _BOOLEANS[text.lower()]


def _texts(text: str) -> Any:
    if text.startswith("["):
        return tomllib.loads(f"value = {text}")["value"]
    return [part.strip() for part in text.split(",") if part.strip()]


def _table(text: str) -> Any:
    if not text:
        return {}
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return tomllib.loads(f"value = {text}")["value"] if text.startswith("{") else tomllib.loads(text)


_PARSERS: dict[Any, Callable[[str], Any]] = {bool: _boolean, int: int, float: float, tuple: _texts, dict: _table}
