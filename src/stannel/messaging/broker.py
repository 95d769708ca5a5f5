"""What all brokers have in common: how triggers read them together, and what becomes of a message in the end."""

import asyncio
import importlib
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Hashable
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, ClassVar

from stannel.errors import PluginMissing, StannelError, address_without_password, closest, did_you_mean
from stannel.messaging.matching import applied, matches, path_of
from stannel.messaging.message import Message
from stannel.protocol.requests import GetConnection
from stannel.sdk import environment
from stannel.sdk.connection import Connection
from stannel.triggers.asking import ask
from stannel.triggers.base import ENCRYPTED_PREFIX, BaseEventTrigger, TriggerEvent
from stannel.triggers.loading import plain_arguments
from stannel.triggers.shared_stream import AdvanceItem, AdvanceOutcome, SharedStreamProducer

GROUP = "stannel.brokers"
_LONGEST_PAUSE = 5.0


class BrokerUnreachable(StannelError):
    """The broker did not answer; its messages stay where they are and will be read again."""

    def __init__(self, broker: str, address: str, reason: object) -> None:
        shown = address_without_password(address)
        super().__init__(
            f"{broker} at {shown} does not answer ({reason}). Its messages stay there and are read again; "
            "check the address, or the connection, that the trigger names."
        )
        self.broker, self.address = broker, shown


class Fate(Enum):
    """What becomes of a message on its broker."""

    DONE = "done"
    AGAIN = "again"
    DEAD = "dead"


def fate_of(outcome: AdvanceOutcome, deliveries: int, max_deliveries: int) -> Fate:
    """Refused messages, and those on which somebody has failed often enough, are dead; unread ones come again."""
    if outcome.rejected:
        return Fate.DEAD
    if outcome.failed:
        return Fate.DEAD if deliveries >= max_deliveries else Fate.AGAIN
    return Fate.DONE if outcome.acked else Fate.AGAIN


def why_dead(outcome: AdvanceOutcome) -> str:
    """In words, for whoever looks at the dead letters."""
    all_of_them = outcome.acked + outcome.failed + outcome.rejected
    if outcome.rejected:
        return f"{outcome.rejected} of {all_of_them} subscribers rejected it"
    return f"{outcome.failed} of {all_of_them} subscribers failed on it"


def client(module: str, extra: str) -> Any:
    """A broker's client library; the error names the extra that brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise PluginMissing(GROUP, extra, extra) from error


class Window:
    """How many messages are with the subscribers; at most so many are taken from the broker."""

    def __init__(self, most: int) -> None:
        self._most, self._out = most, 0
        self._room = asyncio.Event()
        self._room.set()

    def take(self, count: int = 1) -> None:
        self._out += count
        if self._out >= self._most:
            self._room.clear()

    def give_back(self, count: int = 1) -> None:
        self._out -= count
        if self._out < self._most:
            self._room.set()

    @property
    def free(self) -> int:
        return max(1, self._most - self._out)

    async def room(self) -> None:
        """Wait until another message may be taken."""
        await self._room.wait()


class Patience:
    """Waits ever longer between attempts, and says when it is time to give up: after `seconds` without success."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._pause = 0.0

    def succeeded(self) -> None:
        self._since, self._pause = None, 0.0

    async def wait(self) -> bool:
        """False: it took too long. Else a pause has passed, and another attempt is worth it."""
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
        if now - self._since >= self._seconds:
            return False
        self._pause = min(_LONGEST_PAUSE, self._pause * 2 or 0.05)
        await asyncio.sleep(self._pause)
        return True


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What is read and how: the arguments of a broker's trigger that concern its stream.

    The address is `url`, or the connection `conn_id`. A message that subscribers fail on is delivered `max_deliveries`
    times, `retry_delay` seconds apart; then it goes to the dead letters. At most `prefetch` are out at a time. A broker
    that is away is waited for `patience` seconds before the triggers fail, to be started again later.
    """

    default_conn_id: ClassVar[str]
    # Readers that agree in these read together; the rest is as the first of them says.
    identity: ClassVar[tuple[str, ...]]
    # Arguments that may hold a password.
    secrets: ClassVar[tuple[str, ...]] = ("url",)

    conn_id: str | None = None
    url: str | None = None
    max_deliveries: int = 3
    retry_delay: float = 5.0
    prefetch: int = 1000
    patience: float = 30.0

    def key(self, broker: str) -> Hashable:
        """Equal for those who read the same; it holds no password."""
        address = self.conn_id or self.default_conn_id if self.url is None else address_without_password(self.url)
        return (broker, address, *(_hashable(getattr(self, name)) for name in self.identity))

    async def connection(self) -> Any:
        """The connection that says where the broker is: that of the environment, else the engine's."""
        conn_id = self.conn_id or self.default_conn_id
        text = environment.lookup("CONN", conn_id)
        return await ask(GetConnection(conn_id)) if text is None else Connection.from_text(conn_id, text)

    async def address(self, url_of: Callable[[Any], str]) -> str:
        """The URL, or what `url_of` makes of the connection."""
        return self.url if self.url is not None else url_of(await self.connection())


def _hashable(value: Any) -> Hashable:
    return tuple(value) if isinstance(value, list) else value


class BrokerTrigger(BaseEventTrigger):
    """Fires for the messages of a broker, which are shared by all triggers that read the same.

    `where` names fields and the values wanted; `apply_function` is the path of a function that makes a payload of a
    message, or None of one that is not wanted. Without either every message is an event.
    """

    broker: ClassVar[str]
    reading_class: ClassVar[type[Reading]]
    # Names that authors know from elsewhere, and arguments that mean nothing here.
    aliases: ClassVar[dict[str, str]] = {}
    ignored: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        *,
        where: dict[str, Any] | None = None,
        apply_function: str | Callable[..., Any] | None = None,
        apply_function_kwargs: dict[str, Any] | None = None,
        queue: str | None = None,
        **reading: Any,
    ) -> None:
        super().__init__(queue=queue)
        self.where = where or {}
        self.apply_function = None if apply_function is None else path_of(apply_function)
        self.apply_function_kwargs = apply_function_kwargs or {}
        self.reading = self._read_from(reading)

    @classmethod
    def _read_from(cls, arguments: dict[str, Any]) -> Reading:
        names = [field.name for field in fields(cls.reading_class)]
        known: dict[str, Any] = {}
        for name, value in arguments.items():
            own = cls.aliases.get(name, name)
            if own in names:
                known[own] = value
            elif own not in cls.ignored:
                hint = did_you_mean(closest(name, names)) or "."
                raise TypeError(f"{cls.__name__} has no argument {name!r}{hint}")
        return cls.reading_class(**known)

    @classmethod
    @abstractmethod
    def producer(cls, reading: Any) -> SharedStreamProducer:
        """The producer that reads this."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = {"where": self.where, "apply_function": self.apply_function}
        arguments["apply_function_kwargs"] = self.apply_function_kwargs
        given = {name: value for name, value in arguments.items() if value}
        for field in fields(self.reading):
            if (value := getattr(self.reading, field.name)) != field.default:
                is_secret = field.name in self.reading.secrets
                given[f"{ENCRYPTED_PREFIX}{field.name}" if is_secret else field.name] = value
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", given

    def shared_stream_key(self) -> Hashable:
        return self.reading.key(self.broker)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        return cls.producer(cls(**plain_arguments(kwargs)).reading)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Message]) -> AsyncIterator[TriggerEvent]:
        async for message in shared_stream:
            event = await self._event_of(message)
            if event is not None:
                yield event

    async def _event_of(self, message: Message) -> TriggerEvent | None:
        payload = await self._payload_of(message)
        if payload is None or isinstance(payload, TriggerEvent):
            return payload
        return TriggerEvent(payload, key=message.key)

    async def _payload_of(self, message: Message) -> Any:
        if self.where and not matches(message, self.where):
            return None
        if self.apply_function is None:
            return message.payload()
        return await applied(self.apply_function, message, self.apply_function_kwargs)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Read alone, as part of a wait for several things. A message is done when the next one is asked for."""
        producer = self.producer(self.reading)
        stream: Any = producer.open_stream()
        try:
            async for message, position in stream:
                event = await self._event_of(message)
                if event is not None:
                    yield event
                await producer.advance([AdvanceItem(position, AdvanceOutcome(1, 0))])
        finally:
            await stream.aclose()
            await producer.aclose()
