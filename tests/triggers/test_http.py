import asyncio
import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stannel.protocol.replies import ConnectionResult
from stannel.triggers.base import TriggerEvent
from stannel.triggers.http import HttpEventTrigger, HttpSensorTrigger, HttpTrigger, read_response

PATIENCE = 30
QUICK = 0.01


class Server(ThreadingHTTPServer):
    """Answers with the statuses of `script`, one after the other, the last for ever; shows what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.script: list[int] = [200]
        self.seen: list[dict[str, object]] = []


class Answering(BaseHTTPRequestHandler):
    server: Server

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length).decode()
        self.server.seen.append(
            {"method": self.command, "path": self.path, "headers": dict(self.headers), "body": body}
        )
        status = self.server.script.pop(0) if len(self.server.script) > 1 else self.server.script[0]
        if status == 302:
            self.send_response(302)
            self.send_header("Location", "/moved")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        answer = json.dumps({"count": len(self.server.seen)}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = answer  # noqa: N815 - the names the base class looks for

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(engine):
    """A server on loopback that the connection `http_default` leads to."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    engine.connections["http_default"] = connection_to(server.server_address[1])
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def connection_to(port: int) -> ConnectionResult:
    return ConnectionResult(
        conn_id="http_default",
        conn_type="http",
        host="127.0.0.1",
        schema=None,
        login="me",
        password="pass",
        port=port,
        extra='{"X-From": "connection", "timeout": 20, "trust_env": false}',
    )


async def payloads_of(trigger):
    async with asyncio.timeout(PATIENCE):
        return [event.payload async for event in trigger.run()]


async def test_one_call_brings_its_response(server):
    trigger = HttpTrigger(endpoint="api/x", headers={"X-Own": "1"}, data={"a": "b"})
    [payload] = await payloads_of(trigger)
    response = read_response(payload["response"])
    assert (payload["status"], response.status_code, response.json()) == ("success", 200, {"count": 1})
    assert response.headers["content-type"] == "application/json"
    [seen] = server.seen
    assert (seen["method"], seen["path"], seen["body"]) == ("POST", "/api/x", "a=b")
    assert seen["headers"]["X-From"] == "connection"
    assert seen["headers"]["X-Own"] == "1"
    assert seen["headers"]["Authorization"] == "Basic " + base64.b64encode(b"me:pass").decode()


@pytest.mark.parametrize(
    ("method", "data", "path", "body"),
    [
        ("GET", {"q": "1"}, "/e?q=1", ""),
        ("PUT", "raw text", "/e", "raw text"),
        ("POST", None, "/e", ""),
    ],
)
async def test_data_is_a_query_a_form_or_a_text(server, method, data, path, body):
    [payload] = await payloads_of(HttpTrigger(method=method, endpoint="/e", data=data))
    assert payload["status"] == "success"
    assert (server.seen[0]["path"], server.seen[0]["body"]) == (path, body)


async def test_a_redirect_is_followed_unless_the_author_says_otherwise(server):
    server.script = [302, 200]
    [payload] = await payloads_of(HttpTrigger(method="GET", endpoint="old"))
    assert read_response(payload["response"]).url.path == "/moved"
    server.script = [302]
    [payload] = await payloads_of(HttpTrigger(method="GET", endpoint="old", extra_options={"allow_redirects": False}))
    assert read_response(payload["response"]).status_code == 302


async def test_an_error_status_is_an_error_event(server):
    server.script = [500]
    [payload] = await payloads_of(HttpTrigger(endpoint="x?token=t"))
    assert payload["status"] == "error"
    assert payload["message"].endswith("/x answered 500 Internal Server Error.")


async def test_an_error_status_is_an_answer_if_it_is_not_checked(server):
    server.script = [500]
    [payload] = await payloads_of(HttpTrigger(endpoint="x", extra_options={"check_response": False}))
    assert read_response(payload["response"]).status_code == 500


async def test_a_connection_that_does_not_exist_is_an_error_event(engine):
    [payload] = await payloads_of(HttpTrigger(http_conn_id="nowhere"))
    assert payload["status"] == "error"
    assert "'nowhere'" in payload["message"]


async def test_a_sensor_waits_until_the_answer_is_no_error(server):
    server.script = [404, 404, 404, 404, 404, 200]
    assert await payloads_of(HttpSensorTrigger("ready", poke_interval=QUICK)) == [True]
    assert [seen["method"] for seen in server.seen] == ["GET"] * 6


async def test_a_sensor_outlives_a_server_that_is_away_for_a_short_while(server):
    server.script = [503, 503, 429, 404, 500, 503, 503, 200]
    assert await payloads_of(HttpSensorTrigger("ready", poke_interval=QUICK)) == [True]


async def test_a_sensor_gives_up_on_a_server_that_stays_away(server):
    server.script = [503]
    with pytest.raises(Exception, match="answered 503"):
        await payloads_of(HttpSensorTrigger("ready", poke_interval=QUICK))
    assert len(server.seen) == 4


async def test_a_sensor_gives_up_at_once_on_an_error_that_will_not_pass(server):
    server.script = [403]
    with pytest.raises(Exception, match="answered 403"):
        await payloads_of(HttpSensorTrigger("ready", poke_interval=QUICK))
    assert len(server.seen) == 1


@pytest.fixture
def checks(tmp_path, monkeypatch):
    (tmp_path / "checks_of_test.py").write_text(
        "async def third(response):\n    return response.json()['count'] >= 3\n"
        "def second(response):\n    return response.json()['count'] >= 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(("check", "count"), [("third", 3), ("second", 2)])
async def test_an_event_is_the_first_answer_that_the_check_accepts(server, checks, check, count):
    trigger = HttpEventTrigger(
        endpoint="news", response_check_path=f"checks_of_test.{check}", poll_interval=QUICK, queue="q"
    )
    assert trigger.queue == "q"
    [event] = [event async for event in trigger.run()]
    assert event == TriggerEvent(json.dumps({"count": count}))


def test_an_event_trigger_without_a_check_is_refused():
    with pytest.raises(ValueError, match="response_check_path"):
        HttpEventTrigger(endpoint="news")
