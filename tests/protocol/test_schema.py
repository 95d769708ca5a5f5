"""What both ends agree on: versions, codes, JSON."""

from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stannel.protocol.errors import NotJson, UnknownSchema
from stannel.protocol.schema import DEEPEST, SchemaVersion, ensure_json, known_schema

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Ratio(float):
    pass


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


@given(JSON)
def test_a_json_value_stays_the_very_same_object(value):
    assert ensure_json(value) is value


@pytest.mark.parametrize(
    ("given_value", "kept"),
    [
        (datetime(2026, 11, 15, 6, 52, 23, tzinfo=UTC), "2026-11-15T06:52:23Z"),
        (datetime(2026, 11, 15, 6, 52, tzinfo=timezone(timedelta(hours=2))), "2026-11-15T06:52:00+02:00"),
        ({"a": [1, datetime(2026, 1, 1, tzinfo=UTC)]}, {"a": [1, "2026-01-01T00:00:00Z"]}),
        ((1, (2, 3)), [1, [2, 3]]),
        ([Colour.RED, Level.HIGH, Ratio(0.5)], ["red", 3, 0.5]),
    ],
)
def test_what_json_can_express_another_way_is_kept_that_way(given_value, kept):
    result = ensure_json(given_value)
    assert result == kept
    assert msgspec.json.decode(msgspec.json.encode(result)) == kept


def test_the_original_is_never_changed():
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    original = {"list": [moment], "map": {"at": moment}}
    ensure_json(original)
    assert original == {"list": [moment], "map": {"at": moment}}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (b"raw", r"the value is bytes"),
        ({"a": [0, float("nan")]}, r"the value at \['a'\]\[1\] is nan"),
        ([float("-inf")], r"the value at \[0\] is -inf"),
        ({"n": 2**64}, r"the value at \['n'\] is an integer that does not fit in 64 bits"),
        (-(2**63) - 1, r"does not fit in 64 bits"),
        ({"a": {1: 2}}, r"the value at \['a'\] has a key of type int"),
        ({None: 1}, r"has a key of type NoneType"),
        ([object()], r"the value at \[0\] is of type object"),
        ({1, 2}, r"is of type set"),
        (msgspec.msgpack.Ext(5, b"x"), r"is of type Ext"),
    ],
)
def test_what_json_cannot_express_is_refused_by_its_place(value, sentence):
    with pytest.raises(NotJson, match=sentence):
        ensure_json(value)


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"k": value}])
def test_nesting_is_bounded(wrap):
    value = 0
    for _ in range(DEEPEST):
        value = wrap(value)
    assert ensure_json(value) == value
    with pytest.raises(NotJson, match="nested more than"):
        ensure_json(wrap(value))


def test_a_caller_may_ask_for_less_nesting():
    assert ensure_json(nested(3), 3) == [[[]]]
    with pytest.raises(NotJson, match="nested more than 3 levels deep"):
        ensure_json(nested(4), 3)


def test_known_schemas_are_recognised_and_ordered():
    assert known_schema("2026-06-16") is SchemaVersion.JUNE_2026
    assert SchemaVersion.JUNE_2026 < SchemaVersion.OCTOBER_2026


@pytest.mark.parametrize("declared", ["2027-01-01", "", None, 20261030, ["2026-10-30"]])
def test_an_unknown_schema_is_refused_with_the_known_ones(declared):
    with pytest.raises(UnknownSchema, match=r"this engine speaks 2026-06-16, 2026-10-30"):
        known_schema(declared)
