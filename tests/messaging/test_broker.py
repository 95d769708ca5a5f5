"""What all brokers' triggers and producers share."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from stannel.errors import PluginMissing
from stannel.messaging.broker import (
    BrokerTrigger,
    BrokerUnreachable,
    Fate,
    Patience,
    Reading,
    Window,
    client,
    fate_of,
    why_dead,
)
from stannel.messaging.message import Message
from stannel.protocol.replies import ConnectionResult, Reply
from stannel.protocol.requests import GetConnection, Request
from stannel.testing import MemoryBroker, MemoryProducer
from stannel.triggers.asking import use_asker
from stannel.triggers.base import TriggerEvent
from stannel.triggers.loading import load_trigger
from stannel.triggers.shared_stream import (
    AdvanceOutcome,
    SharedStreamManager,
    SharedStreamProducer,
    reject_shared_stream_event,
)


@dataclass(frozen=True, kw_only=True)
class ShelfReading(Reading):
    default_conn_id: ClassVar[str] = "shelf_default"
    identity: ClassVar[tuple[str, ...]] = ("shelf",)

    shelf: str | list[str]


class ShelfTrigger(BrokerTrigger):
    broker = "shelf"
    reading_class = ShelfReading
    memory: ClassVar[MemoryBroker]

    @classmethod
    def producer(cls, reading: Any) -> SharedStreamProducer:
        return MemoryProducer(cls.memory)


@pytest.fixture
def shelf() -> MemoryBroker:
    ShelfTrigger.memory = MemoryBroker(max_deliveries=2)
    return ShelfTrigger.memory


def message(**value: Any) -> Message:
    return Message(None, {"topic": "t"}, value=value)


@pytest.mark.parametrize(
    ("outcome", "deliveries", "fate"),
    [
        (AdvanceOutcome(1, 0), 1, Fate.DONE),
        (AdvanceOutcome(1, 0), 9, Fate.DONE),
        (AdvanceOutcome(2, 1), 1, Fate.AGAIN),
        (AdvanceOutcome(2, 1), 2, Fate.AGAIN),
        (AdvanceOutcome(2, 1), 3, Fate.DEAD),
        (AdvanceOutcome(2, 0, 1), 1, Fate.DEAD),
        (AdvanceOutcome(0, 1, 1), 1, Fate.DEAD),
        (AdvanceOutcome(0, 0), 1, Fate.AGAIN),
        (AdvanceOutcome(0, 0), 99, Fate.AGAIN),
    ],
)
def test_the_fate_of_a_message_follows_from_its_outcome(outcome: AdvanceOutcome, deliveries: int, fate: Fate) -> None:
    assert fate_of(outcome, deliveries, max_deliveries=3) is fate


def test_a_dead_letter_says_who_was_against_it() -> None:
    assert why_dead(AdvanceOutcome(1, 1, 1)) == "1 of 3 subscribers rejected it"
    assert why_dead(AdvanceOutcome(0, 2)) == "2 of 2 subscribers failed on it"


# --- triggers ---------------------------------------------------------------------------------------------------------


def test_a_trigger_is_the_same_after_it_was_stored() -> None:
    trigger = ShelfTrigger(shelf=["a", "b"], url="shelf://user:secret@host", where={"kind": "x"}, prefetch=7)
    path, arguments = trigger.serialize()
    assert arguments == {
        "shelf": ["a", "b"], "encrypted__url": "shelf://user:secret@host", "where": {"kind": "x"}, "prefetch": 7,
    }  # fmt: skip
    assert load_trigger(path, arguments).serialize() == (path, arguments)


def test_neither_the_key_nor_the_words_of_a_trigger_show_a_password() -> None:
    trigger = ShelfTrigger(shelf="a", url="shelf://user:secret@host")
    assert "secret" not in f"{trigger!r} {trigger.shared_stream_key()!r}"


def test_triggers_read_together_if_they_read_the_same() -> None:
    key = ShelfTrigger(shelf="a").shared_stream_key()
    assert key == ShelfTrigger(shelf="a", where={"kind": "x"}, conn_id="shelf_default").shared_stream_key()
    assert key != ShelfTrigger(shelf="b").shared_stream_key()
    assert key != ShelfTrigger(shelf="a", conn_id="other").shared_stream_key()
    assert hash(ShelfTrigger(shelf=["a", "b"]).shared_stream_key())


def test_an_argument_that_does_not_exist_is_told_while_the_file_is_read() -> None:
    with pytest.raises(TypeError, match=r"ShelfTrigger has no argument 'shelv'; did you mean shelf\?"):
        ShelfTrigger(shelv="a")


async def test_a_trigger_fires_for_the_messages_it_wants(shelf: MemoryBroker) -> None:
    for kind in ("x", "y", "x"):
        shelf.publish(message(kind=kind))
    trigger = ShelfTrigger(shelf="a", where={"kind": "x"})
    events: Any = trigger.run()
    assert [(await anext(events)).payload["value"] for _ in range(2)] == [{"kind": "x"}] * 2
    await events.aclose()


def ends_with_its_own_event(payload: dict[str, Any]) -> TriggerEvent:
    return TriggerEvent(payload["value"], identity="mine")


async def test_an_event_has_the_key_of_its_message_and_a_function_may_make_the_event_itself(
    shelf: MemoryBroker,
) -> None:
    shelf.publish(Message(b"1", {}, key="k"))
    for function, event in [
        (None, TriggerEvent({"value": 1}, key="k")),
        (ends_with_its_own_event, TriggerEvent(1, identity="mine")),
    ]:
        events: Any = ShelfTrigger(shelf="a", apply_function=function).run()
        assert await anext(events) == event
        await events.aclose()


async def test_read_alone_a_message_is_done_when_the_next_one_is_asked_for(shelf: MemoryBroker) -> None:
    shelf.publish(message(n=1))
    shelf.publish(message(n=2))
    events: Any = ShelfTrigger(shelf="a").run()
    await anext(events)
    assert shelf.done == []
    await anext(events)
    await events.aclose()
    assert len(shelf.done) == 1


def refuses(payload: dict[str, Any]) -> None:
    reject_shared_stream_event()


def breaks(payload: dict[str, Any]) -> None:
    raise RuntimeError("this message breaks it")


async def fired(trigger: ShelfTrigger) -> AsyncIterator[Any]:
    """Run it as a host does that gives up when a filter raises."""
    manager = SharedStreamManager()
    key = trigger.shared_stream_key()
    events = trigger.filter_shared_stream(manager.subscribe(trigger_id=1, trigger=trigger, key=key))
    try:
        async for event in events:
            number = manager.bind_pending_event(trigger_id=1, key=key)
            yield event.payload
            manager.confirm_persisted([number] if number is not None else [])
    except RuntimeError as error:
        await manager.left(1, key, error=error)
    finally:
        await manager.stop_all()


async def test_a_function_may_refuse_a_message_for_ever(shelf: MemoryBroker) -> None:
    shelf.publish(message(bad=True))
    reading = asyncio.create_task(anext(fired(ShelfTrigger(shelf="a", apply_function=refuses))))  # type: ignore[arg-type]
    async with asyncio.timeout(5):
        while not shelf.dead_letters:
            await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    assert shelf.dead_letters[0].reason == "1 of 1 subscribers rejected it"


async def test_a_function_that_raises_has_not_handled_its_message(shelf: MemoryBroker) -> None:
    position = shelf.publish(message(bad=True))
    assert [payload async for payload in fired(ShelfTrigger(shelf="a", apply_function=breaks))] == []
    assert (shelf.done, shelf.deliveries[position]) == ([], 2)


# --- the rest ---------------------------------------------------------------------------------------------------------


class Connections:
    """Answers questions for connections."""

    async def ask(self, request: Request) -> Reply | None:
        assert isinstance(request, GetConnection)
        return ConnectionResult(
            conn_id=request.conn_id, conn_type="shelf", host="host", schema=None, login=None, password=None,
            port=1, extra=None,
        )  # fmt: skip

    async def run_ended(self, dag_ids: Any, timeout: float) -> bool:
        raise AssertionError


async def test_the_address_is_the_url_or_that_of_the_connection() -> None:
    def url_of(connection: Any) -> str:
        return f"shelf://{connection.conn_id}.{connection.host}"

    with use_asker(Connections()):
        assert await ShelfReading(shelf="a", url="shelf://x").address(url_of) == "shelf://x"
        assert await ShelfReading(shelf="a").address(url_of) == "shelf://shelf_default.host"
        assert await ShelfReading(shelf="a", conn_id="mine").address(url_of) == "shelf://mine.host"


async def test_a_connection_of_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANNEL_CONN_SHELF_DEFAULT", "shelf://there:7")
    with use_asker(Connections()):
        assert await ShelfReading(shelf="a").address(lambda found: f"{found.host}:{found.port}") == "there:7"


def test_a_missing_client_library_names_the_extra_that_brings_it() -> None:
    with pytest.raises(PluginMissing, match=r"pip install 'stannel\[redis\]'"):
        client("no_such_library", "redis")


def test_an_unreachable_broker_is_told_without_its_password() -> None:
    error = BrokerUnreachable("Shelf", "shelf://user:secret@host", "refused")
    assert "secret" not in str(error)
    assert str(error).startswith("Shelf at shelf://user:***@host does not answer (refused).")


async def test_a_window_holds_back_until_something_is_given_back() -> None:
    window = Window(2)
    window.take(2)
    waiting = asyncio.create_task(window.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    window.give_back()
    await waiting
    assert window.free == 1


async def test_patience_ends_and_is_fresh_after_a_success() -> None:
    patience = Patience(0)
    assert not await patience.wait()
    patience = Patience(60)
    assert await patience.wait()
    patience.succeeded()
    assert patience._since is None
