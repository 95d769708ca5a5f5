"""Values that travel between tasks."""

import dataclasses
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stannel.errors import NotSerializable
from stannel.sdk import serde


@dataclasses.dataclass
class Point:
    x: int
    at: datetime


@dataclasses.dataclass(frozen=True)
class Outer:
    points: list[Point]


class Pair(NamedTuple):
    left: int
    right: int


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


def there_and_back(value: Any) -> Any:
    wire = msgspec.msgpack.encode(serde.encode(value))
    return serde.decode(msgspec.json.decode(msgspec.json.encode(msgspec.msgpack.decode(wire))))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(2**80),
        2**80,
        1.5,
        math.inf,
        "text",
        [1, [2, {"a": None}]],
        {"a": {"b": (1, 2)}},
        {1: "one", (2, 3): "pair"},
        {"__classname__": "an author's own key"},
        (1, (2,)),
        {1, 2},
        frozenset({"a"}),
        b"\x00\xff",
        datetime(2026, 11, 15, 6, 30, tzinfo=UTC),
        datetime(2026, 11, 15, 6, 30, 1, 5),
        date(2026, 11, 15),
        time(6, 30),
        timedelta(days=-1, microseconds=3),
        Decimal("1.10"),
        UUID(int=5),
        Path("/tmp/x"),
        Point(1, datetime(2026, 1, 1, tzinfo=UTC)),
        Outer([Point(1, datetime(2026, 1, 1, tzinfo=UTC))]),
    ],
    ids=repr,
)
def test_a_value_arrives_as_what_it_was(value: Any) -> None:
    result = there_and_back(value)
    assert result == value
    assert type(result) is type(value)


def test_a_time_zone_with_rules_keeps_them_in_the_repeated_hour() -> None:
    for fold in (0, 1):
        moment = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold)
        result = there_and_back(moment)
        assert result.utcoffset() == moment.utcoffset()
        assert result.tzinfo.key == "Europe/Berlin"


def test_not_a_number_stays_not_a_number() -> None:
    assert math.isnan(there_and_back(float("nan")))


def test_relatives_of_known_types_become_those() -> None:
    assert there_and_back([Colour.RED, Level.HIGH, Pair(1, 2)]) == ["red", 3, (1, 2)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.just("__classname__"), inner)
        | st.dictionaries(st.integers(), inner)
        | st.tuples(inner, inner)
    ),
    max_leaves=20,
)


@given(json_values)
def test_anything_made_of_plain_parts_arrives_equal(value: Any) -> None:
    assert there_and_back(value) == value


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(), st.lists, max_leaves=10))
def test_plain_json_needs_no_tags(value: Any) -> None:
    assert serde.encode(value) == value


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (object(), "the thing cannot"),
        ({"a": [1, {"b": open}]}, r"at \['a'\]\[1\]\['b'\]"),
        (Outer([Point(1, object())]), r"at \.points\[0\]\.at"),  # type: ignore[arg-type]
        ({"s": {1, print}}, r"at \['s'\]"),
    ],
)
def test_what_cannot_travel_is_named_with_its_place(value: Any, place: str) -> None:
    with pytest.raises(NotSerializable, match=place):
        serde.encode(value, "the thing")


def test_a_list_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotSerializable, match="contains itself"):
        serde.encode(value)


def test_a_class_that_cannot_be_found_again_is_refused_on_either_side() -> None:
    @dataclasses.dataclass
    class Local:
        x: int

    with pytest.raises(NotSerializable, match="inside a function"):
        serde.encode(Local(1))
    with pytest.raises(NotSerializable, match="no_such_module:Thing"):
        serde.decode({"__classname__": "no_such_module:Thing", "__version__": 1, "__data__": {}})
    with pytest.raises(NotSerializable, match="not a dataclass"):
        serde.decode({"__classname__": "os:system", "__version__": 1, "__data__": {}})
