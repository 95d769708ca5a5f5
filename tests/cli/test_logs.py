"""Lines of several processes, read as one log."""

import json
from typing import Any

from stannel.cli.logs import in_order, read_lines, styled


def line(event: str, second: float, **more: Any) -> str:
    stamp = f"2026-11-15T12:00:{second:09.6f}+00:00"
    return json.dumps({"timestamp": stamp, "level": "info", "logger": "x", "event": event, **more})


def test_lines_of_a_worker_and_a_trigger_are_shown_in_the_order_they_were_written(tmp_path):
    file = tmp_path / "attempt=1.log"
    lines = [line("begin", 1), line("resumed", 3.5), line("fired", 3, trigger_id=4)]
    file.write_text("\n".join(lines) + "\n")
    assert [json.loads(one)["event"] for one in read_lines(file)] == ["begin", "fired", "resumed"]


def test_a_line_without_a_timestamp_stays_behind_the_one_before_it():
    lines = ["first of all", line("late", 9), "its second line", line("early", 1), '{"timestamp": "never"}']
    assert in_order(lines) == [lines[0], lines[3], lines[4], lines[1], lines[2]]


def test_lines_of_the_same_moment_keep_their_order():
    lines = [line(str(number), 1) for number in range(20)]
    assert in_order(lines) == lines


def test_a_line_of_a_trigger_is_marked_by_its_number():
    text, _ = styled(line("looking", 1, trigger_id=4, path="/x"))
    assert text == "12:00:01.000 INFO     [trigger 4] looking  path=/x"
    assert "trigger" not in styled(line("working", 1))[0]
