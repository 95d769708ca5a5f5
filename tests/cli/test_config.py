"""Settings from the command line."""

import pytest


def test_a_setting_is_printed_with_either_spelling(stannel):
    assert stannel("config", "get", "core", "parallelism").stdout == "32\n"
    assert stannel("config", "get", "core.parallelism").stdout == "32\n"


def test_the_origin_of_a_setting_is_shown(stannel, home):
    home.mkdir()
    (home / "stannel.toml").write_text("[core]\nparallelism = 7\n")
    assert stannel.json("config", "get", "core", "parallelism") == {
        "section": "core",
        "key": "parallelism",
        "value": 7,
        "origin": f"{home}/stannel.toml:2",
        "description": "How many tasks may run at the same time for one scheduler, over all DAGs.",
    }
    assert [row["key"] for row in stannel.json("config", "list", "--changed")] == ["parallelism"]


def test_only_one_section_is_listed_on_request(stannel):
    assert {row["section"] for row in stannel.json("config", "list", "--section", "logging")} == {"logging"}
    assert "did you mean core?" in stannel("config", "list", "--section", "cor", code=1).stderr


@pytest.mark.parametrize("form", ["table", "json", "yaml", "plain"])
def test_a_secret_is_hidden_in_every_form(stannel, form):
    env = {"STANNEL__DATABASE__SQL_ALCHEMY_CONN": "postgresql://me:hunter2@db/stannel"}
    assert "hunter2" not in stannel("config", "list", "-o", form, env=env).output
    assert stannel("config", "get", "database", "sql_alchemy_conn", env=env).stdout == "***\n"


def test_an_unknown_setting_gets_a_suggestion(stannel):
    assert "did you mean core.parallelism" in stannel("config", "get", "core.paralelism", code=1).stderr
