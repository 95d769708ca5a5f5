"""The small helpers that Airflow code imports."""

import os
from datetime import UTC, datetime
from typing import Any

import pytest

from stannel.compat import helpers
from stannel.sdk.exceptions import AirflowConfigException


def test_settings_come_from_the_environment_and_stannels_own_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__PARALLELISM", "8")
    monkeypatch.setenv("AIRFLOW__CORE__FLAG", "True")
    monkeypatch.setenv("STANNEL__CORE__FLAG", "no")
    assert helpers.conf.getint("core", "parallelism") == 8
    assert helpers.conf.getboolean("core", "flag") is False
    assert helpers.conf.get("core", "absent", fallback=None) is None
    assert helpers.conf.getlist("core", "absent", fallback=["a"]) == ["a"]
    with pytest.raises(AirflowConfigException, match="STANNEL__CORE__ABSENT"):
        helpers.conf.get("core", "absent")


def test_prune_dict_drops_what_is_empty() -> None:
    value = {"a": None, "b": 0, "c": {"d": None}, "e": [None, 1, {"f": None}]}
    assert helpers.prune_dict(value) == {"b": 0, "e": [1]}
    assert helpers.prune_dict(value, mode="truthy") == {"e": [1]}
    with pytest.raises(ValueError, match="mode"):
        helpers.prune_dict(value, mode="other")


@pytest.mark.parametrize(("values", "expected"), [((1, None), True), ((1, 2), False), ((0, None), False)])
def test_exactly_one_counts_truthy_values(values: tuple[Any, ...], expected: bool) -> None:
    assert helpers.exactly_one(*values) is expected


def test_small_functions_do_what_their_names_say() -> None:
    assert list(helpers.chunks([1, 2, 3], 2)) == [[1, 2], [3]]
    assert helpers.merge_dicts({"a": {"b": 1, "c": 1}}, {"a": {"b": 2}}) == {"a": {"b": 2, "c": 1}}
    assert helpers.as_flattened_list([[1], [2, 3]]) == [1, 2, 3]
    assert helpers.convert_camel_to_snake("HTTPServerName") == "http_server_name"
    assert helpers.import_string("datetime.datetime") is datetime
    assert helpers.qualname(datetime) == "datetime.datetime"
    assert helpers.is_valid_dotpath("a.b")
    assert not helpers.is_valid_dotpath("a")
    assert helpers.days_ago(0) < datetime.now(UTC)
    assert helpers.md5(b"").hexdigest() == "d41d8cd98f00b204e9800998ecf8427e"
    with pytest.raises(ImportError):
        helpers.import_string("datetime.nothing")


def test_patch_environ_restores_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANNEL_TEST_A", "before")
    with helpers.patch_environ({"STANNEL_TEST_A": "during", "STANNEL_TEST_B": "during"}):
        assert os.environ["STANNEL_TEST_A"] == os.environ["STANNEL_TEST_B"] == "during"
    assert os.environ["STANNEL_TEST_A"] == "before"
    assert "STANNEL_TEST_B" not in os.environ
