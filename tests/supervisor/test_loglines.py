"""Whatever a process writes becomes log lines; nothing it writes is an error."""

from datetime import datetime
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stannel.supervisor.loglines import Lines, record_from

ARRIVED = "2026-11-15T00:00:00+00:00"


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_lines_do_not_depend_on_how_the_stream_was_cut(data: bytes, cuts: list[int]):
    whole, cut = Lines(), Lines()
    expected = [*whole.feed(data), *whole.end()]
    edges = sorted({0, len(data), *(min(place, len(data)) for place in cuts)})
    found = [line for start, end in pairwise(edges) for line in cut.feed(data[start:end])]
    assert found + cut.end() == expected


def test_the_last_line_needs_no_line_break():
    lines = Lines()
    assert lines.feed(b"one\ntwo") == ["one"]
    assert lines.end() == ["two"]
    assert lines.end() == []


@pytest.mark.parametrize("piece", [1, 7, 64, 1000])
def test_a_long_line_is_cut_and_the_next_one_is_whole(piece: int):
    lines = Lines(limit=100)
    data = b"x" * 500 + b"\nnext\n"
    found = [line for start in range(0, len(data), piece) for line in lines.feed(data[start : start + piece])]
    assert [line[:2] for line in found] == ["xx", "ne"]
    assert found[0].startswith("x" * 100 + " ... [line cut")
    assert found[1] == "next"


def test_bytes_that_are_not_text_are_replaced():
    assert Lines().feed(b"caf\xe9\r\n") == ["caf\ufffd"]


@given(st.text())
def test_any_line_becomes_a_record(line: str):
    record = record_from(line, ARRIVED)
    assert set(record) >= {"timestamp", "level", "logger", "event"}
    assert record["level"] in {"critical", "error", "warning", "info", "debug"}


@given(
    st.dictionaries(
        st.sampled_from(["event", "level", "timestamp", "logger", "other"]),
        st.one_of(st.none(), st.integers(), st.text(), st.lists(st.integers())),
    )
)
def test_any_object_becomes_a_record_with_a_moment_a_level_and_a_text(fields: dict[str, object]):
    record = record_from(msgspec.json.encode(fields).decode(), ARRIVED)
    assert datetime.fromisoformat(record["timestamp"]).tzinfo is not None
    assert isinstance(record["event"], str)
    assert isinstance(record["logger"], str)


@pytest.mark.parametrize(
    ("given_level", "kept"),
    [
        ('"warn"', "warning"),
        ('"WARNING"', "warning"),
        ('"exception"', "error"),
        ('"info+2"', "info"),
        ('"notset"', "info"),
        ('"critical"', "critical"),
        ('"loud"', "info"),
        ("7", "info"),
        ("null", "info"),
    ],
)
def test_levels_are_taken_as_they_are_meant(given_level: str, kept: str):
    assert record_from(f'{{"event": "e", "level": {given_level}}}', ARRIVED)["level"] == kept


@pytest.mark.parametrize("line", ["no json", "[1, 2]", "7", "{broken", '"text"'])
def test_a_line_that_is_no_object_is_kept_as_text(line: str):
    record = record_from(line, ARRIVED)
    assert (record["event"], record["level"], record["timestamp"]) == (line, "info", ARRIVED)


@pytest.mark.parametrize(
    "moment", ["2026-08-22T13:58:00.123456789+02:00", "2026-08-22T13:58:00.5Z", "2026-08-22T13:58:00+00:00"]
)
def test_a_moment_with_a_zone_is_kept(moment: str):
    assert record_from(f'{{"event": "e", "timestamp": "{moment}"}}', ARRIVED)["timestamp"] == moment


@pytest.mark.parametrize("moment", ["2026-08-22T13:58", "2026-08-22T13:58:01.123456789"])
def test_a_moment_without_a_zone_is_local_time(moment: str):
    kept = datetime.fromisoformat(record_from(f'{{"event": "e", "timestamp": "{moment}"}}', ARRIVED)["timestamp"])
    assert kept.replace(tzinfo=None).isoformat().startswith("2026-08-22T13:58")
    assert kept.utcoffset() == kept.replace(tzinfo=None).astimezone().utcoffset()


@pytest.mark.parametrize("moment", ['"yesterday"', "12", "null", '""'])
def test_a_moment_that_cannot_be_read_is_the_arrival(moment: str):
    assert record_from(f'{{"event": "e", "timestamp": {moment}}}', ARRIVED)["timestamp"] == ARRIVED


def test_other_fields_survive():
    record = record_from('{"event": "e", "level": "error", "exception": "Traceback...", "n": [1]}', ARRIVED)
    assert (record["exception"], record["n"]) == ("Traceback...", [1])
