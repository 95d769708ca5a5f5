"""Promises of the table of settings and of how it is shown."""

import json

import msgspec
import pytest

from stannel.errors import UnknownId
from stannel.settings import DECLARATIONS, load_settings
from stannel.settings.values import from_data


@pytest.fixture
def settings(tmp_path):
    environ = {
        "STANNEL__CORE__SENSITIVE_VAR_CONN_NAMES": "pin,puk",
        "STANNEL__DATABASE__SQL_ALCHEMY_CONN": "postgresql://joe:hunter22@db/x",
    }
    return load_settings(tmp_path, environ)


@pytest.mark.parametrize("row", DECLARATIONS, ids=lambda row: row.name)
def test_every_setting_says_what_it_means_in_one_sentence(row):
    assert row.description.endswith(".")
    assert row.description[0].isupper() or row.description[0] == "`"
    assert "|" not in row.description


@pytest.mark.parametrize("row", [row for row in DECLARATIONS if not row.secret], ids=lambda row: row.name)
def test_every_default_would_be_accepted_if_somebody_wrote_it(row):
    written = "" if row.default is None else msgspec.to_builtins(row.default, enc_hook=str)
    assert from_data(written, row.type) == row.default


def test_entries_are_plain_data_in_the_order_of_the_table(settings):
    entries = settings.entries()
    assert [(entry.section, entry.key) for entry in entries] == [(row.section, row.key) for row in DECLARATIONS]
    assert json.loads(msgspec.json.encode([entry.value for entry in entries]))


def test_an_entry_says_value_and_origin(settings, tmp_path):
    names = settings.entry("core", "sensitive_var_conn_names")
    assert (list(names.value), names.origin) == (["pin", "puk"], "STANNEL__CORE__SENSITIVE_VAR_CONN_NAMES")
    assert settings.entry("core", "dags_folder").value == f"{tmp_path}/dags"


def test_a_secret_somebody_set_is_hidden_and_a_default_is_not(settings, tmp_path):
    assert settings.entry("database", "sql_alchemy_conn").value == "***"
    untouched = load_settings(tmp_path, {})
    assert untouched.entry("database", "sql_alchemy_conn").value == f"sqlite:///{tmp_path}/stannel.db"
    assert untouched.entry("core", "fernet_key").value == ""


def test_an_unknown_entry_suggests_the_near_one(settings):
    with pytest.raises(UnknownId, match=r"no setting 'core\.paralelism'; did you mean core\.parallelism"):
        settings.entry("core", "paralelism")


def test_settings_cannot_be_changed_by_accident(settings):
    with pytest.raises(AttributeError):
        settings.core.parallelism = 5
