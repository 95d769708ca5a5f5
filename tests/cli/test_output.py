"""Values as people and as programs read them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from stannel.cli.output import duration, moment, show_one, show_rows

EVENING = datetime(2026, 11, 15, 18, 30, 5, 250000, tzinfo=timezone(timedelta(hours=2)))
ROW = {"name": "a", "is_on": True, "nothing": None, "when": EVENING, "many": ["x", "y"], "share": 0.5}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0.3141, "0.31 s"),
        (12.34, "12.3 s"),
        (59.9, "59.9 s"),
        (59.96, "1 min 00 s"),
        (65, "1 min 05 s"),
        (3600, "1 h 00 min"),
        (90061, "25 h 01 min"),
    ],
)
def test_a_duration_is_as_precise_as_people_need_it(seconds, text):
    assert duration(seconds) == text


def test_a_moment_is_shown_in_utc():
    assert moment(EVENING) == "2026-11-15 16:30:05Z"
    assert moment(None) == ""


def test_plain_lines_hold_the_columns_between_tabs(capsys):
    show_rows([{**ROW, "name": "a\tb\nc"}], "plain", columns=("name", "is_on", "nothing", "when", "many"))
    assert capsys.readouterr().out == "a b c\ttrue\t\t2026-11-15T16:30:05.250000Z\tx, y\n"


def test_json_holds_every_key_with_its_type(capsys):
    show_rows([ROW], "json", columns=("name",))
    out = capsys.readouterr().out
    assert '"is_on": true' in out
    assert '"nothing": null' in out
    assert '"when": "2026-11-15T18:30:05.250000+02:00"' in out


def test_an_empty_list_is_still_a_list_for_programs(capsys):
    show_rows([], "json", columns=("name",))
    assert capsys.readouterr().out == "[]\n"


def test_an_empty_table_says_what_to_do_beside_the_output(capsys):
    show_rows([], "table", columns=("name",), empty="Make one.")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "Make one.\n")


def test_a_table_shows_words_instead_of_values(capsys):
    show_rows([{**ROW, "duration": 65.0}], "table", columns=("name", "is_on", "when", "many", "duration"))
    out = capsys.readouterr().out
    for text in ("is on", "yes", "2026-11-15 16:30:05Z", "x, y", "1 min 05 s"):
        assert text in out


def test_a_long_cell_is_not_folded_in_a_pipe(capsys):
    show_rows([{"name": "n" * 300}], "table", columns=("name",))
    assert "n" * 300 in capsys.readouterr().out


def test_people_see_of_one_thing_only_what_is_not_empty(capsys):
    show_one(ROW, "table")
    out = capsys.readouterr().out
    assert "nothing" not in out
    assert "share" in out


def test_markup_in_a_value_is_shown_as_it_is(capsys):
    show_rows([{"name": "[bold]x[/bold] :smile:"}], "table", columns=("name",))
    assert "[bold]x[/bold] :smile:" in capsys.readouterr().out


def test_a_value_that_has_no_json_form_is_shown_as_text(capsys):
    show_one({"zone": UTC}, "json")
    assert '"zone": "UTC"' in capsys.readouterr().out
