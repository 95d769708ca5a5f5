"""NATS JetStream: a durable consumer's messages, acknowledged once everything made of them is stored."""

import asyncio
import logging
from collections.abc import AsyncIterator, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import msgspec

from stannel.errors import StannelError
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
from stannel.messaging.provider import BaseMessageQueueProvider
from stannel.triggers.shared_stream import AdvanceItem, SharedStreamProducer

_log = logging.getLogger(__name__)
# How long one request for messages stands; it is made again at once.
_REQUEST_SECONDS = 5.0
_FULFILLED = ("404", "408")


class NatsRefused(StannelError):
    """The server refuses to deliver; the stream ends, and its messages stay where they are."""

    def __init__(self, stream: str, reason: str) -> None:
        super().__init__(f"NATS does not deliver the messages of the stream {stream!r}: {reason}. They stay there.")


@dataclass(frozen=True, kw_only=True)
class NatsReading(Reading):
    """The messages of `stream`, all or those of `subject`, through the consumer `durable`, which is made if need be.

    A message is lent for `ack_wait` seconds and renewed while it is worked on. Dead letters go to the stream
    `dead_letter`, `<stream>-dead` unless given, which is made when the first is there.
    """

    default_conn_id: ClassVar[str] = "nats_default"
    identity: ClassVar[tuple[str, ...]] = ("stream", "durable")

    stream: str
    subject: str | None = None
    durable: str = "stannel"
    ack_wait: float = 30.0
    dead_letter: str | None = None

    @property
    def dead_stream(self) -> str:
        return self.dead_letter or f"{self.stream}-dead"


class NatsPosition(NamedTuple):
    """A message's number in its stream, how often it was delivered, and itself, to be answered."""

    sequence: int
    deliveries: int
    message: Any


class NatsProducer(SharedStreamProducer):
    """Has a request for messages standing at the server at all times, and room for what it asked for."""

    def __init__(self, reading: NatsReading) -> None:
        self._reading = reading
        self._nats = client("nats", "nats")
        self._errors = client("nats.js.errors", "nats")
        self._url = ""
        self._connection: Any = None
        self._js: Any = None
        self._inbox = ""
        self._subscription: Any = None
        self._arrived: asyncio.Queue[Any] = asyncio.Queue()
        self._asked_for = 0
        self._window = Window(reading.prefetch)
        self._out: dict[int, Any] = {}
        self._renewing: asyncio.Task[None] | None = None

    async def open_stream(self) -> AsyncIterator[tuple[Message, NatsPosition]]:
        await self._connect()
        await self._ensure_consumer()
        self._inbox = self._connection.new_inbox()
        self._subscription = await self._connection.subscribe(self._inbox, cb=self._take)
        self._renewing = asyncio.create_task(self._renew())
        while True:
            if self._asked_for <= 0:
                await self._window.room()
                await self._ask()
            message = await self._next()
            if message is None:
                continue
            position = self._position(message)
            if position.sequence not in self._out:
                self._out[position.sequence] = message
                self._window.take()
                yield self._message(position), position

    async def _connect(self) -> None:
        self._url = await self._reading.address(_url_of)
        try:
            async with asyncio.timeout(self._reading.patience):
                self._connection = await self._nats.connect(
                    self._url.split(","), max_reconnect_attempts=-1, reconnect_time_wait=0.2, error_cb=_noted
                )
        except (OSError, TimeoutError, self._nats.errors.Error) as error:
            raise BrokerUnreachable("NATS", self._url, error or type(error).__name__) from error
        self._js = self._connection.jetstream()

    async def _ensure_consumer(self) -> None:
        reading = self._reading
        try:
            await self._js.consumer_info(reading.stream, reading.durable)
        except self._errors.NotFoundError:
            await self._js.add_consumer(
                reading.stream,
                durable_name=reading.durable,
                ack_policy="explicit",
                ack_wait=reading.ack_wait,
                max_ack_pending=2 * reading.prefetch,
                filter_subject=reading.subject,
            )

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _ask(self) -> None:
        self._asked_for = self._window.free
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._reading.stream}.{self._reading.durable}"
        request = {"batch": self._asked_for, "expires": int(_REQUEST_SECONDS * 1e9)}
        await self._connection.publish(subject, msgspec.json.encode(request), reply=self._inbox)

    async def _take(self, message: Any) -> None:
        self._arrived.put_nowait(message)

    async def _next(self) -> Any | None:
        """The next message. None: none has come for the last request, which is to be made again."""
        try:
            async with asyncio.timeout(_REQUEST_SECONDS + 1):
                message = await self._arrived.get()
        except TimeoutError:
            # The server has always answered by now, unless the request or the answer was lost with a connection.
            self._asked_for = 0
            await self._wait_for_connection()
            return None
        status = (message.headers or {}).get("Status")
        if status is None:
            self._asked_for -= 1
            return message
        if status not in _FULFILLED and "Batch Completed" not in (reason := message.headers.get("Description", "")):
            raise NatsRefused(self._reading.stream, f"{status} {reason}")
        self._asked_for = 0
        return None

    async def _wait_for_connection(self) -> None:
        patience = Patience(self._reading.patience)
        while not self._connection.is_connected:
            if self._connection.is_closed or not await patience.wait():
                raise BrokerUnreachable("NATS", self._url, "the connection is lost")

    def _position(self, message: Any) -> NatsPosition:
        about = message.metadata
        return NatsPosition(about.sequence.stream, about.num_delivered, message)

    def _message(self, position: NatsPosition) -> Message:
        message = position.message
        about = {
            "subject": message.subject,
            "headers": dict(message.headers or {}),
            "stream": self._reading.stream,
            "sequence": position.sequence,
        }
        return Message(message.data, about)

    async def _renew(self) -> None:
        """Keep what is out from being delivered to somebody else."""
        while True:
            await asyncio.sleep(self._reading.ack_wait / 3)
            for message in [*self._out.values()]:
                try:
                    await message.in_progress()
                except self._nats.errors.Error as error:
                    _log.debug("A message could not be renewed; it may be delivered again: %s", error)

    # --- what has become of them -------------------------------------------------------------------------------------

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        fresh = [item for item in batch if item.broker_payload.sequence in self._out]
        for position, outcome in fresh:
            message = position.message
            match fate_of(outcome, position.deliveries, self._reading.max_deliveries):
                case Fate.DONE:
                    await message.ack()
                case Fate.AGAIN:
                    # Forgotten first: it may be back before anything else happens.
                    self._forget(position)
                    await message.nak(delay=self._reading.retry_delay)
                case Fate.DEAD:
                    await self._bury(position, why_dead(outcome))
                    await message.term()
        # Answers travel in order: when the server has answered this, it has them all.
        await self._connection.flush()
        for position, _ in fresh:
            self._forget(position)

    def _forget(self, position: NatsPosition) -> None:
        if self._out.get(position.sequence) is position.message:
            del self._out[position.sequence]
            self._window.give_back()

    async def _bury(self, position: NatsPosition, reason: str) -> None:
        message, stream = position.message, self._reading.dead_stream
        subject = f"stannel.dead.{stream}"
        headers = dict(message.headers or {})
        headers |= {
            "Nats-Msg-Id": self.get_event_identity(position),
            "Stannel-Origin": f"{self._reading.stream}/{position.sequence}",
            "Stannel-Subject": message.subject,
            "Stannel-Reason": reason,
        }
        try:
            await self._js.publish(subject, message.data, headers=headers)
        except self._errors.NoStreamResponseError:
            await self._js.add_stream(name=stream, subjects=[subject])
            await self._js.publish(subject, message.data, headers=headers)

    def get_advance_lane(self, broker_payload: NatsPosition) -> Hashable:
        return str(broker_payload.message.subject)

    def get_event_identity(self, broker_payload: NatsPosition) -> str:
        return f"{self._reading.stream}/{broker_payload.sequence}"

    def may_retry_advance(self, error: Exception) -> bool:
        return isinstance(error, self._nats.errors.Error | TimeoutError | OSError)

    async def aclose(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        if self._connection is None:
            return
        try:
            await self._give_back()
        finally:
            await self._connection.close()

    async def _give_back(self) -> None:
        """Whoever reads next need not wait until the messages' time is over."""
        if not self._connection.is_connected or self._subscription is None:
            return
        # First, or what is given back would come here again. What is on its way still arrives.
        await self._subscription.drain()
        while not self._arrived.empty():
            message = self._arrived.get_nowait()
            if message.reply:
                self._out.setdefault(self._position(message).sequence, message)
        for _, message in sorted(self._out.items()):
            await message.nak()
        await self._connection.flush()


async def _noted(error: Exception) -> None:
    _log.debug("NATS: %s", error)


def _url_of(connection: Any) -> str:
    login = f"{connection.login}:{connection.password or ''}@" if connection.login else ""
    return f"nats://{login}{connection.host or 'localhost'}:{connection.port or 4222}"


class NatsTrigger(BrokerTrigger):
    """Fires for the messages of a JetStream stream; the arguments are those of `NatsReading` and `BrokerTrigger`."""

    broker = "nats"
    reading_class = NatsReading

    @classmethod
    def producer(cls, reading: Any) -> SharedStreamProducer:
        return NatsProducer(reading)


class NatsProvider(BaseMessageQueueProvider):
    """`MessageQueueTrigger(scheme="nats", stream=...)`."""

    scheme = "nats"

    def trigger_class(self) -> type[NatsTrigger]:
        return NatsTrigger
