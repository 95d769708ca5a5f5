"""The part of JSON Schema that run parameters use, checked without a dependency.

Known keywords: type, enum, const, minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, minLength,
maxLength, pattern, format (date, date-time, time), items, minItems, maxItems, uniqueItems, properties, required,
additionalProperties, anyOf, oneOf, allOf, not. Others are for display and are not checked.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time
from typing import Any


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value - value == 0


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: _is_number(value) and value == int(value),
    "number": _is_number,
    "array": lambda value: isinstance(value, list | tuple),
    "object": lambda value: isinstance(value, dict),
}
_FORMATS: Mapping[str, Callable[[str], Any]] = {
    "date": date.fromisoformat,
    "date-time": datetime.fromisoformat,
    "time": time.fromisoformat,
}


def problems(value: Any, schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Each way in which the value breaks the schema, as a clause; nothing if it meets it."""
    at = f" at {path}" if path else ""
    wanted = schema.get("type")
    if wanted is not None:
        kinds = [wanted] if isinstance(wanted, str) else wanted
        if not any(_TYPES.get(kind, lambda _: True)(value) for kind in kinds):
            yield f"{value!r}{at} is not of type {' or '.join(map(str, kinds))}"
            return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{value!r}{at} is none of {', '.join(map(repr, schema['enum']))}"
    if "const" in schema and value != schema["const"]:
        yield f"{value!r}{at} is not {schema['const']!r}"
    if isinstance(value, str):
        yield from _text_problems(value, schema, at)
    elif _is_number(value):
        yield from _number_problems(value, schema, at)
    elif isinstance(value, list | tuple):
        yield from _list_problems(value, schema, path, at)
    elif isinstance(value, dict):
        yield from _dict_problems(value, schema, path, at)
    yield from _combination_problems(value, schema, path, at)


def _text_problems(value: str, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    if len(value) < schema.get("minLength", 0):
        yield f"{value!r}{at} is shorter than {schema['minLength']} characters"
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield f"{value!r}{at} is longer than {schema['maxLength']} characters"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{value!r}{at} does not match {schema['pattern']!r}"
    reader = _FORMATS.get(schema.get("format", ""))
    if reader is not None:
        try:
            reader(value)
        except ValueError:
            yield f"{value!r}{at} is not a {schema['format']}"


def _number_problems(value: float, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{value!r}{at} is less than {schema['minimum']}"
    if "maximum" in schema and value > schema["maximum"]:
        yield f"{value!r}{at} is more than {schema['maximum']}"
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        yield f"{value!r}{at} is not more than {schema['exclusiveMinimum']}"
    if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
        yield f"{value!r}{at} is not less than {schema['exclusiveMaximum']}"
    if "multipleOf" in schema and value % schema["multipleOf"]:
        yield f"{value!r}{at} is not a multiple of {schema['multipleOf']}"


def _list_problems(value: Any, schema: Mapping[str, Any], path: str, at: str) -> Iterator[str]:
    if len(value) < schema.get("minItems", 0):
        yield f"the list{at} has fewer than {schema['minItems']} items"
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield f"the list{at} has more than {schema['maxItems']} items"
    if schema.get("uniqueItems") and any(item in value[:place] for place, item in enumerate(value)):
        yield f"the list{at} has the same item twice"
    if isinstance(schema.get("items"), Mapping):
        for place, item in enumerate(value):
            yield from problems(item, schema["items"], f"{path}[{place}]")


def _dict_problems(value: dict[str, Any], schema: Mapping[str, Any], path: str, at: str) -> Iterator[str]:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{name!r}{at} is missing"
    for name, item in value.items():
        inner = f"{path}.{name}" if path else str(name)
        if name in known:
            yield from problems(item, known[name], inner)
        elif schema.get("additionalProperties") is False:
            yield f"{name!r}{at} is not expected"
        elif isinstance(schema.get("additionalProperties"), Mapping):
            yield from problems(item, schema["additionalProperties"], inner)


def _combination_problems(value: Any, schema: Mapping[str, Any], path: str, at: str) -> Iterator[str]:
    for part in schema.get("allOf", ()):
        yield from problems(value, part, path)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            met = sum(not any(problems(value, part, path)) for part in schema[keyword])
            if met == 0 or (met > 1 and keyword == "oneOf"):
                yield f"{value!r}{at} meets {met} of the schemas in {keyword}"
    if "not" in schema and not any(problems(value, schema["not"], path)):
        yield f"{value!r}{at} is what the schema excludes"
