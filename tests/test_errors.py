"""Promises of the errors: sentences for people, data for programs."""

import copy
import pickle
from types import UnionType
from typing import Union, get_args, get_origin, get_type_hints

import pytest

from stannel import errors
from stannel.errors import (
    CycleFound,
    DagInvalid,
    PluginMissing,
    SettingsError,
    StannelError,
    StoreReadOnly,
    StoreUnavailable,
    UnknownId,
    address_without_password,
    closest,
)

VALUES = {str: "something", int: 7, float: 0.5, bool: True}


def example_of(kind):
    """An error of this kind, made from its signature, so that no error escapes these promises."""
    if kind.__init__ is Exception.__init__:
        return kind("Something happened.")
    hints = get_type_hints(kind.__init__)
    return kind(**{name: value_for(hint) for name, hint in hints.items() if name != "return"})


def value_for(hint):
    if hint in VALUES:
        return VALUES[hint]
    if get_origin(hint) in (Union, UnionType):
        return value_for(get_args(hint)[0])
    return ("first", "second")


def is_error(value):
    return isinstance(value, type) and issubclass(value, StannelError) and value is not StannelError


EXAMPLES = [example_of(kind) for kind in vars(errors).values() if is_error(kind)]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_is_a_sentence_and_a_promise(error):
    assert str(error).endswith((".", "?", "!"))
    assert type(error).__doc__


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_keeps_its_data_in_another_process(error):
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(twin), str(twin), vars(twin)) == (type(error), str(error), vars(error))


def test_a_settings_error_names_file_and_line():
    error = SettingsError("stannel.toml", 12, "[core] parallelism", "must be a whole number")
    assert str(error).startswith("stannel.toml:12: [core] parallelism must be a whole number")
    assert (error.file, error.line, error.key) == ("stannel.toml", 12, "[core] parallelism")


def test_an_unknown_id_suggests_what_was_meant():
    assert str(UnknownId("DAG", "slaes", ["sales"])) == "There is no DAG 'slaes'; did you mean sales?"
    assert str(UnknownId("DAG", "x", ["a", "b", "c"])) == "There is no DAG 'x'; did you mean a, b or c?"
    assert str(UnknownId("DAG", "x")) == "There is no DAG 'x'."


def test_a_cycle_shows_its_path_and_can_be_caught_as_an_invalid_dag():
    error = CycleFound("sales", ["a", "b", "a"], "sales.py")
    assert "a >> b >> a" in str(error)
    assert "sales.py" in str(error)
    assert isinstance(error, DagInvalid)


def test_a_missing_extra_says_what_to_install():
    assert "pip install 'stannel[kafka]'" in str(PluginMissing("stannel.brokers", "kafka", "kafka"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://joe:hunter22@db:5432/stannel", "postgresql://joe:***@db:5432/stannel"),
        ("postgresql://joe:hun@ter/22?x@db/stannel", "postgresql://joe:***@db/stannel"),
        ("postgresql://:hunter22@db/stannel", "postgresql://:***@db/stannel"),
        ("postgresql://db/stannel?user=joe&password=hunter22", "postgresql://db/stannel?user=joe&password=***"),
        ("postgresql://joe@db:5432/stannel", "postgresql://joe@db:5432/stannel"),
        ("sqlite:////var/stannel.db", "sqlite:////var/stannel.db"),
    ],
)
def test_an_address_is_shown_without_its_password(url, shown):
    assert address_without_password(url) == shown
    for error in (StoreUnavailable(url, "connection refused"), StoreReadOnly(url)):
        assert shown in str(error)
        assert "hunter22" not in repr(error) + repr(vars(error))


def test_the_closest_names_come_first_and_case_does_not_matter():
    assert closest("SALES", ["sales", "sale", "purchases"]) == ["sales", "sale"]
    assert closest("zzz", ["sales"]) == []
