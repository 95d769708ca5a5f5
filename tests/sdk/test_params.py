"""Run parameters and the part of JSON Schema they use."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stannel.sdk import Param, ParamsDict
from stannel.sdk.exceptions import ParamValidationError
from stannel.sdk.param_schema import problems


def test_a_param_gives_its_default_or_the_given_value_once_it_fits() -> None:
    param = Param(5, type="integer", minimum=1)
    assert param.resolve() == 5
    assert param.resolve(7) == 7
    with pytest.raises(ParamValidationError, match="0 is less than 1"):
        param.resolve(0)


def test_a_param_without_default_must_be_given() -> None:
    with pytest.raises(ParamValidationError, match="no default"):
        Param(type="string").resolve()
    assert Param(type="string").resolve(suppress_exception=True) is None


def test_setting_an_item_keeps_its_schema() -> None:
    params = ParamsDict({"n": Param(1, type="integer"), "free": "x"})
    params["n"] = 2
    params["new"] = [1]
    assert params.dump() == {"n": 2, "free": "x", "new": [1]}
    with pytest.raises(ParamValidationError):
        params["n"] = "two"


def test_a_dump_names_the_parameter_that_does_not_fit() -> None:
    with pytest.raises(ParamValidationError, match="'n' cannot be used: 'x' is not of type integer"):
        ParamsDict({"n": Param("x", type="integer")}).dump()


@pytest.mark.parametrize(
    ("value", "schema", "problem"),
    [
        (True, {"type": "integer"}, "True is not of type integer"),
        (1.0, {"type": "integer"}, None),
        (None, {"type": ["null", "string"]}, None),
        ("c", {"enum": ["a", "b"]}, "'c' is none of 'a', 'b'"),
        (2, {"const": 3}, "2 is not 3"),
        ("ab", {"minLength": 3}, "shorter than 3"),
        ("ab", {"maxLength": 1}, "longer than 1"),
        ("ab", {"pattern": "^b"}, "does not match '^b'"),
        ("2026-02-30", {"type": "string", "format": "date"}, "is not a date"),
        ("2026-02-28T01:02:03+01:00", {"format": "date-time"}, None),
        ("25:00", {"format": "time"}, "is not a time"),
        (5, {"maximum": 4}, "more than 4"),
        (5, {"exclusiveMaximum": 5}, "not less than 5"),
        (5, {"exclusiveMinimum": 5}, "not more than 5"),
        (5, {"multipleOf": 2}, "not a multiple of 2"),
        ([1, "x"], {"items": {"type": "integer"}}, "'x' at [1] is not of type integer"),
        ([1], {"minItems": 2}, "fewer than 2"),
        ([1, 2], {"maxItems": 1}, "more than 1"),
        ([1, 1], {"uniqueItems": True}, "same item twice"),
        ({"a": "x"}, {"properties": {"a": {"type": "integer"}}}, "'x' at a is not of type integer"),
        ({}, {"required": ["a"]}, "'a' is missing"),
        ({"b": 1}, {"additionalProperties": False}, "'b' is not expected"),
        ({"b": "x"}, {"additionalProperties": {"type": "integer"}}, "'x' at b is not of type integer"),
        (5, {"anyOf": [{"type": "string"}, {"maximum": 3}]}, "meets 0 of the schemas in anyOf"),
        (5, {"oneOf": [{"type": "integer"}, {"minimum": 3}]}, "meets 2 of the schemas in oneOf"),
        (5, {"allOf": [{"minimum": 6}]}, "less than 6"),
        (5, {"not": {"type": "integer"}}, "excludes"),
    ],
)
def test_each_keyword_is_checked_as_the_reference_does(value: Any, schema: Any, problem: str | None) -> None:
    found = next(problems(value, schema), None)
    if problem is None:
        assert found is None
    else:
        assert found is not None
        assert problem in found
    if "format" not in schema:
        assert jsonschema.Draft202012Validator(schema).is_valid(value) is (problem is None)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)
kinds = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
simple = st.fixed_dictionaries(
    {},
    optional={
        "type": kinds | st.lists(kinds, min_size=1, max_size=3, unique=True),
        "minimum": st.integers(-2, 2),
        "maxLength": st.integers(0, 2),
        "minItems": st.integers(0, 2),
        "required": st.lists(st.sampled_from("ab"), unique=True),
        "additionalProperties": st.booleans(),
    },
)
schemas = st.recursive(
    simple,
    lambda inner: (
        st.fixed_dictionaries({"items": inner})
        | st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from("ab"), inner)})
        | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"not": inner})
    ),
    max_leaves=5,
)


@given(values, schemas)
def test_the_verdict_is_that_of_a_full_validator(value: Any, schema: Any) -> None:
    assert any(problems(value, schema)) is not jsonschema.Draft202012Validator(schema).is_valid(value)
