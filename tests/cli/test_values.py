"""What people may type."""

from datetime import UTC, datetime

import pytest

from stannel.cli.base import Refused, Session
from stannel.cli.values import find_run, parse_moment
from stannel.errors import UnknownId


@pytest.fixture
def session(home, store) -> Session:
    session = Session()
    session.given_home = home
    yield session
    session.close()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-15", datetime(2026, 11, 15, tzinfo=UTC)),
        ("2026-11-15T06:30:00+02:00", datetime(2026, 11, 15, 4, 30, tzinfo=UTC)),
        ("2026-11-15 06:30:00Z", datetime(2026, 11, 15, 6, 30, tzinfo=UTC)),
        ("yesterday", None),
        ("", None),
    ],
)
def test_a_moment_is_iso_and_in_utc_when_it_names_no_zone(text, moment):
    assert parse_moment(text, None) == moment


def test_a_moment_without_a_zone_is_in_the_configured_one(home):
    home.mkdir()
    (home / "stannel.toml").write_text('[core]\ndefault_timezone = "Europe/Berlin"\n')
    session = Session()
    session.given_home = home
    assert parse_moment("2026-07-01T12:00", session) == datetime(2026, 7, 1, 10, tzinfo=UTC)


def test_a_run_is_found_by_its_id_its_date_or_as_the_latest(session, make_run):
    early = make_run(run_id="early", logical_date=datetime(2026, 11, 1, tzinfo=UTC))
    late = make_run(run_id="late", logical_date=datetime(2026, 11, 2, tzinfo=UTC))
    assert find_run(session, "orders", "early") == early
    assert find_run(session, "orders", "2026-11-01") == early
    assert find_run(session, "orders", "latest") == late
    assert find_run(session, "orders", None) == late


def test_a_run_whose_id_looks_like_a_date_is_found_by_it(session, make_run):
    run = make_run(run_id="2026-11-03")
    assert find_run(session, "orders", "2026-11-03") == run


def test_what_is_not_there_is_refused_by_name(session, make_run):
    with pytest.raises(UnknownId, match="There is no DAG 'order'"):
        find_run(session, "order", None)
    with pytest.raises(Refused, match="has no runs yet"):
        find_run(session, "orders", None)
    make_run(run_id="nightly")
    with pytest.raises(UnknownId, match="did you mean nightly"):
        find_run(session, "orders", "nightley")


def test_conf_may_be_read_from_a_file(stannel, store, tmp_path):
    file = tmp_path / "conf.json"
    file.write_text('{"limit": 5}')
    assert stannel.json("dags", "trigger", "orders", "--conf", f"@{file}")["conf"] == {"limit": 5}
    assert "cannot be read" in stannel("dags", "trigger", "orders", "--conf", "@/nowhere", code=2).stderr


@pytest.mark.parametrize("text", ["[1]", "5", "{oops", ""])
def test_conf_that_is_no_json_object_is_a_usage_error(stannel, store, text):
    assert "Invalid value for '--conf'" in stannel("dags", "trigger", "plain", "--conf", text, code=2).stderr
