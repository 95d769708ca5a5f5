"""Promises of reading values by their declared type."""

from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import pytest
from msgspec import Meta

from stannel.settings.secret import Secret
from stannel.settings.values import expected, from_data, from_text

COUNT = Annotated[int, Meta(ge=1)]
OPTIONAL = Annotated[Annotated[float, Meta(gt=0)] | None, Meta(description="x")]
TEXTS = tuple[str, ...]
TABLE = dict[str, Any]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        *((text, bool, True) for text in ("true", "True", "1", "yes", "ON")),
        *((text, bool, False) for text in ("false", "FALSE", "0", "no", " off ")),
        (" 12 ", COUNT, 12),
        ("1_000", int, 1000),
        ("2.5", float, 2.5),
        ("3", float, 3.0),
        (" as it is ", str, " as it is "),
        ("", str, ""),
        ("/a/b", Path, Path("/a/b")),
        ("x", Secret, Secret("x")),
        ("utc", ZoneInfo, ZoneInfo("UTC")),
        ("Europe/Berlin", ZoneInfo, ZoneInfo("Europe/Berlin")),
        ("NORMAL", Literal["full", "normal"], "normal"),
        ("", OPTIONAL, None),
        ("None", OPTIONAL, None),
        ("7", OPTIONAL, 7.0),
        ("a, b,,c", TEXTS, ("a", "b", "c")),
        ('["a, b", "c"]', TEXTS, ("a, b", "c")),
        ("", TEXTS, ()),
        ('{"a": {"b": 1}}', TABLE, {"a": {"b": 1}}),
        ("{a = {b = 1}}", TABLE, {"a": {"b": 1}}),
        ("a = 1\n[b]\nc = 2", TABLE, {"a": 1, "b": {"c": 2}}),
        ("", TABLE, {}),
    ],
)
def test_a_text_is_read_as_its_type(text, kind, value):
    read = from_text(text, kind)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("maybe", bool),
        ("", bool),
        ("many", int),
        ("", int),
        ("2.5", int),
        ("0", COUNT),
        ("nan", float),
        ("inf", float),
        ("-1", OPTIONAL),
        ("Mars/Olympus", ZoneInfo),
        ("../etc/passwd", ZoneInfo),
        ("", ZoneInfo),
        ("loud", Literal["full", "normal"]),
        ("[1, 2]", TEXTS),
        ('["a"', TEXTS),
        ("[1]", TABLE),
        ("{a: 1}", TABLE),
    ],
)
def test_a_text_of_another_type_is_refused(text, kind):
    with pytest.raises(ValueError, match=r"."):
        from_text(text, kind)


@pytest.mark.parametrize(
    ("data", "kind", "value"),
    [
        (5, float, 5.0),
        ("Full", Literal["full", "normal"], "full"),
        (["a"], TEXTS, ("a",)),
        ("a,b", TEXTS, ("a", "b")),
        ('{"a": 1}', TABLE, {"a": 1}),
        ("", OPTIONAL, None),
        (5, OPTIONAL, 5.0),
    ],
)
def test_data_may_also_be_written_the_way_airflow_files_do(data, kind, value):
    assert from_data(data, kind) == value


@pytest.mark.parametrize(
    ("data", "kind"),
    [("5", int), (True, int), (1, bool), ("true", bool), (5, str), (5, Path), (5, Secret), (float("inf"), float)],
)
def test_data_of_another_type_is_refused(data, kind):
    with pytest.raises(ValueError, match=r"."):
        from_data(data, kind)


def test_what_is_expected_is_said_in_words():
    assert expected(COUNT) == "a whole number of at least 1"
    assert expected(OPTIONAL) == "a number above 0, or empty"
    assert expected(Literal["full", "normal"]) == "one of full, normal"
    assert expected(TEXTS) == "a list of texts"
