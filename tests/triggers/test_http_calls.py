import socket
import subprocess
import sys

import httpx
import pytest

from stannel.sdk.connection import Connection
from stannel.triggers.http_calls import HttpFailed, http_request_of, send, send_now, url_of


@pytest.mark.parametrize(
    ("parts", "endpoint", "url"),
    [
        ({"host": "h"}, "e", "http://h/e"),
        ({"host": "h"}, "/e", "http://h/e"),
        ({"host": "h/"}, "/e", "http://h/e"),
        ({"host": "h"}, None, "http://h"),
        ({"host": "h", "schema": "https", "port": 8443}, "e?x=1", "https://h:8443/e?x=1"),
        ({"host": "https://h/base"}, "e", "https://h/base/e"),
        ({"host": "https://h", "port": 81}, "e", "https://h:81/e"),
        ({}, "https://h/e", "https://h/e"),
    ],
)
def test_an_address_is_made_of_connection_and_endpoint(parts, endpoint, url):
    assert url_of(Connection("c", "http", **parts), endpoint) == url


def test_an_address_without_a_host_is_refused():
    with pytest.raises(ValueError, match="no host to call 'e'"):
        url_of(Connection("c", "http"), "e")
    with pytest.raises(ValueError, match="no host"):
        url_of(None, None)
    assert url_of(None, "http://h/e") == "http://h/e"


def test_the_extra_of_a_connection_holds_options_and_headers():
    extra = {"X-A": "1", "X-B": 2, "headers": {"X-C": "3"}, "timeout": 5, "verify": False, "stream": True}
    connection = Connection("c", "http", host="h", extra=extra)
    request = http_request_of(connection, "e", {"X-B": "own"}, extra_options={"timeout": 9})
    assert request.headers == {"X-A": "1", "X-B": "own", "X-C": "3"}
    assert request.options == {"timeout": 9, "verify": False}


@pytest.mark.parametrize("extra", ["no JSON", "[1]", None])
def test_an_extra_that_is_no_object_says_nothing(extra):
    request = http_request_of(Connection("c", "http", host="h", extra=extra))
    assert (request.headers, request.options) == ({}, {})


def test_an_option_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="no HTTP option 'timeuot'"):
        http_request_of(None, "http://h", extra_options={"timeuot": 1})


class LoginObject:
    def __init__(self, username="none", password="none"):
        self.username, self.password = username, password


class LoginTuple(tuple):
    __slots__ = ()

    def __new__(cls, login, password):
        return super().__new__(cls, (login, password, "utf-8"))


@pytest.mark.parametrize(
    ("login", "kind", "auth"),
    [
        ("me", None, ("me", "secret")),
        (None, None, None),
        ("me", LoginObject, ("me", "secret")),
        (None, LoginObject, ("none", "none")),
        ("me", LoginTuple, ("me", "secret")),
    ],
)
def test_a_login_may_be_of_any_library(login, kind, auth):
    connection = Connection("c", "http", host="h", login=login, password="secret")
    assert http_request_of(connection, auth_type=kind).auth == auth


def test_a_login_may_be_named_by_its_path():
    connection = Connection("c", "http", host="h", login="me", password="secret")
    assert isinstance(http_request_of(connection, auth_type="httpx.DigestAuth").auth, httpx.DigestAuth)


def test_a_request_does_not_show_what_may_be_secret():
    connection = Connection("c", "http", host="h", login="me", password="s1", extra={"X-Key": "s2"})
    shown = repr(http_request_of(connection, "e?t=s3", {"X": "s4"}, method="post", data={"d": "s5"}))
    assert shown == "HttpRequest(method='POST')"


@pytest.fixture
def closed_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        # Bound and not listening: a call is refused, and nobody else gets the port.
        yield taken.getsockname()[1]


async def test_a_server_that_is_not_there_gives_no_answer(closed_port):
    request = http_request_of(None, f"http://127.0.0.1:{closed_port}/e?token=t", extra_options={"trust_env": False})
    with pytest.raises(HttpFailed, match=r"/e got no answer: ") as caught:
        await send(request)
    assert (caught.value.status, caught.value.may_pass) == (None, True)
    with pytest.raises(HttpFailed, match=r"/e got no answer: "):
        send_now(request)


@pytest.mark.parametrize(("status", "may_pass"), [(None, True), (429, True), (500, True), (404, False), (401, False)])
def test_some_failures_may_pass(status, may_pass):
    assert HttpFailed("GET", "http://h", "failed", status).may_pass is may_pass


def test_a_failure_shows_no_password():
    assert (
        str(HttpFailed("GET", "http://me:pw@h/e?token=t", "answered 500", 500)) == "GET http://me:***@h/e answered 500."
    )


def test_without_its_client_library_a_call_says_what_to_install():
    program = """
import sys
sys.modules["httpx"] = None
import stannel.triggers.http
from stannel.triggers.http_calls import http_request_of, send_now
try:
    send_now(http_request_of(None, "http://h"))
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'stannel[http]'" in done.stdout
