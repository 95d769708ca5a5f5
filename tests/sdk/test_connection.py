"""Connections: where they come from and how they are written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.memory_channel import MemoryChannel

from stannel.protocol.replies import ConnectionResult
from stannel.sdk import BaseHook, Connection
from stannel.sdk.comms import use_channel
from stannel.sdk.exceptions import AirflowException, AirflowNotFoundException


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("postgres://user:p%40ss@host:5432/db", ("postgres", "host", "user", "p@ss", "db", 5432)),
        ("postgresql://host", ("postgres", "host", None, None, None, None)),
        ("google-cloud-platform://", ("google_cloud_platform", None, None, None, None, None)),
        ("http://:secret@host/", ("http", "host", "", "secret", None, None)),
        ("mysql://CamelHost.Example:3306/", ("mysql", "CamelHost.Example", None, None, None, 3306)),
    ],
)
def test_a_uri_is_taken_apart(uri: str, parts: tuple[object, ...]) -> None:
    made = Connection(conn_id="c", uri=uri)
    assert (made.conn_type, made.host, made.login, made.password, made.schema, made.port) == parts


def test_extra_travels_in_the_query() -> None:
    assert Connection(uri="x://h/?a=1&b=two%20words").extra_dejson == {"a": "1", "b": "two words"}
    nested = Connection(conn_type="x", extra={"a": {"b": [1]}})
    assert Connection(uri=nested.get_uri()).extra_dejson == {"a": {"b": [1]}}


texts = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=10)


@given(texts, texts, texts, texts, st.none() | st.integers(0, 65535), st.none() | st.dictionaries(st.text(), st.text()))
def test_a_uri_gives_an_equal_connection_again(
    host: str | None, login: str | None, password: str | None, schema: str | None, port: int | None, extra: object
) -> None:
    made = Connection(
        "c",
        "some_type",
        host=host,
        login=login,
        password=password,
        schema=schema,
        port=port,
        extra=extra or None,  # type: ignore[arg-type]
    )
    again = Connection("c", uri=made.get_uri())
    assert (again.host, again.password, again.schema, again.port) == (host, password, schema, port)
    assert (again.login or None) == login
    assert again.extra_dejson == made.extra_dejson


def test_json_is_read_and_unknown_parts_are_refused() -> None:
    made = Connection.from_text("c", '{"conn_type": "http", "host": "h", "port": "80", "extra": {"a": 1}}')
    assert (made.conn_type, made.port, made.extra_dejson) == ("http", 80, {"a": 1})
    assert json.loads(made.as_json())["extra"] == {"a": 1}
    with pytest.raises(AirflowException, match="'hots'"):
        Connection.from_text("c", '{"conn_type": "http", "hots": "h"}')
    with pytest.raises(AirflowException, match="cannot be read"):
        Connection.from_text("c", "{nope")


@pytest.mark.parametrize("uri", ["no-scheme", "x://h:port/"])
def test_a_bad_uri_is_refused_with_the_connection(uri: str) -> None:
    with pytest.raises(AirflowException, match="'c'"):
        Connection("c", uri=uri)


def test_a_uri_and_parts_exclude_each_other() -> None:
    with pytest.raises(AirflowException, match="not from both"):
        Connection("c", conn_type="x", uri="x://h")


def test_the_environment_comes_before_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = MemoryChannel()
    channel.connections["db"] = ConnectionResult(
        conn_id="db", conn_type="postgres", host="engine", schema="s", login="l", password="p", port=1, extra='{"a": 1}'
    )
    with use_channel(channel):
        found = BaseHook.get_connection("db")
        assert (found.host, found.extra_dejson, found.password) == ("engine", {"a": 1}, "p")
        monkeypatch.setenv("STANNEL_CONN_DB", "postgres://environment")
        assert BaseHook.get_connection("db").host == "environment"
    assert len(channel.asked) == 1


def test_a_missing_connection_says_how_to_add_it() -> None:
    with use_channel(MemoryChannel()), pytest.raises(AirflowNotFoundException, match="stannel connections add nope"):
        Connection.get("nope")
    with pytest.raises(AirflowNotFoundException, match=r"STANNEL_CONN_NOPE.*only while a task runs"):
        Connection.get("nope")


def test_a_connection_does_not_show_its_password() -> None:
    assert "secret" not in repr(Connection("c", "x", password="secret"))
