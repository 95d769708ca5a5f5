from typing import Any

import pytest

from stannel.triggers.base import TriggerEvent
from stannel.triggers.callback import CallbackTrigger

MODULE = """
async def greet(name, context=None):
    return f"hello {name}{' in ' + context if context else ''}"

async def without_context(name):
    return name

async def with_anything(**kwargs):
    return sorted(kwargs)

async def failing():
    raise ValueError("the reason")

def plain():
    return 1
"""


@pytest.fixture
def callbacks(tmp_path, monkeypatch):
    (tmp_path / "callbacks_of_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


async def outcome_of(name: str, kwargs: dict[str, Any] | None = None) -> Any:
    trigger = CallbackTrigger(f"callbacks_of_test.{name}", kwargs)
    first, second = [event async for event in trigger.run()]
    assert first == TriggerEvent({"state": "running"})
    return second.payload


@pytest.mark.parametrize(
    ("name", "kwargs", "result"),
    [
        ("greet", {"name": "you"}, "hello you"),
        ("greet", {"name": "you", "context": "here"}, "hello you in here"),
        ("without_context", {"name": "you", "context": "here"}, "you"),
        ("with_anything", {"name": "you", "context": "here"}, ["context", "name"]),
    ],
)
async def test_a_callback_is_awaited_with_what_it_accepts(callbacks, name, kwargs, result):
    assert await outcome_of(name, kwargs) == {"state": "success", "body": result}


@pytest.mark.parametrize(
    ("name", "message", "trace"),
    [
        ("missing", "The callback could not be imported: ", "there is no 'missing'"),
        ("plain", "The callback is not awaitable", "NotAwaitable"),
        ("failing", "The callback raised an error: ", "ValueError: the reason"),
    ],
)
async def test_a_callback_that_fails_says_how(callbacks, name, message, trace):
    payload = await outcome_of(name)
    assert payload["state"] == "failed"
    assert payload["body"].startswith(message)
    assert trace in payload["body"]


def test_a_callback_keeps_its_own_queue():
    trigger = CallbackTrigger("a.b", queue="q")
    assert (trigger.queue, trigger.trigger_queue_inherited_from_task) == ("q", False)
    assert "queue" not in trigger.serialize()[1]
