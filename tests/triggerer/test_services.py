"""Triggers are told what tasks are told, every question gets an answer, and secrets stay secret."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from store.world import NOW, World

from stannel.model.masking import SecretMask
from stannel.protocol import replies, requests
from stannel.protocol.decoding import NIL, decode_reply
from stannel.protocol.replies import ErrorResponse
from stannel.protocol.triggering import Answer, Ask
from stannel.store import Store
from stannel.triggerer.services import Services


@pytest.fixture
def services(sqlite_store: Store) -> Iterator[Services]:
    services = Services(sqlite_store, hostname="here", xcom_limit=1000)
    yield services
    services.close()


def ask(services: Services, request: Any, trigger_id: int | None = None, mask: SecretMask | None = None) -> Answer:
    body = request if isinstance(request, Raw) else Raw(msgspec.msgpack.encode(request))
    return services.answer(Ask(1, trigger_id, body), mask or SecretMask(), datetime.now(UTC))


def error_of(raw: Raw) -> ErrorResponse:
    found = decode_reply(raw)
    assert isinstance(found, ErrorResponse)
    return found


def test_a_secret_that_is_given_away_is_masked_from_then_on(services: Services, sqlite_store: Store) -> None:
    sqlite_store.variables.save("db_password", "hunter22", None)
    mask = SecretMask()
    answer = ask(services, requests.GetVariable("db_password"), mask=mask)
    assert decode_reply(answer.body) == replies.VariableResult("db_password", "hunter22")
    assert answer.error == NIL
    assert mask.redact_text("it is hunter22") == "it is ***"


def test_what_does_not_exist_is_told_in_the_body(services: Services) -> None:
    answer = ask(services, requests.GetVariable("nothing"))
    assert error_of(answer.body).error == "VARIABLE_NOT_FOUND"
    assert answer.error == NIL


def test_a_trigger_asks_in_the_name_of_its_task(services: Services, sqlite_store: Store) -> None:
    world = World(sqlite_store)
    world.deferred("a")
    [one] = sqlite_store.triggers.all()
    put = requests.SetXCom(key="k", value=7, dag_id="d", run_id="r", task_id="a", map_index=-1)
    assert ask(services, put, one.id).error == NIL
    got = ask(services, requests.GetXCom(key="k", dag_id="d", run_id="r", task_id="a", map_index=-1), one.id)
    assert decode_reply(got.body) == replies.XComResult("k", 7)


def test_whoever_has_no_task_may_ask_about_others(services: Services, sqlite_store: Store) -> None:
    world = World(sqlite_store)
    world.dag("a")
    world.new_run("r")
    answer = ask(services, requests.GetDagRunState("d", "r"))
    assert decode_reply(answer.body) == replies.DagRunStateResult("queued")


@pytest.mark.parametrize(
    ("request_", "word"),
    [
        (requests.SucceedTask(end_date=NOW), "is for tasks"),
        (Raw(b"\xc1"), "nothing was done"),
        (requests.GetDagRunState("d", "unknown"), "unknown"),
    ],
)
def test_every_question_gets_an_answer(services: Services, request_: Any, word: str) -> None:
    answer = ask(services, request_)
    assert answer.body == NIL
    assert word in str(error_of(answer.error).detail)


def test_a_bug_behind_the_desk_is_an_answer_too(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(services._store.variables, "find", fail)
    answer = ask(services, requests.GetVariable("x"))
    assert "ZeroDivisionError: a bug" in str(error_of(answer.error).detail)


def test_secrets_named_by_the_trigger_are_masked(services: Services) -> None:
    mask = SecretMask()
    assert ask(services, requests.MaskSecret(value="hunter22", name=None), mask=mask).error == NIL
    assert mask.redact_text("hunter22") == "***"


def test_the_greeting_of_the_waiting_task_is_there_for_templates(services: Services, sqlite_store: Store) -> None:
    World(sqlite_store).deferred("a")
    [one] = sqlite_store.triggers.all()
    greeting = services.startup(one.id, datetime.now(UTC))
    assert greeting is not None
    assert decode_reply(Raw(greeting)).ti.task_id == "a"  # type: ignore[union-attr]
    assert services.startup(one.id + 1, datetime.now(UTC)) is None
