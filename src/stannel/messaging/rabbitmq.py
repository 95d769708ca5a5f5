"""RabbitMQ: the messages of a queue, acknowledged once everything made of them is stored."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote

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
from stannel.messaging.message import Message, text_of
from stannel.messaging.provider import BaseMessageQueueProvider
from stannel.triggers.shared_stream import AdvanceItem, SharedStreamProducer

_COUNT = "x-delivery-count"
_PLAIN = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class RabbitReading(Reading):
    """The messages of `queue_name`, which must exist. Dead letters go to the queue `dead_letter`, `<queue>.dead` unless
    given, which is made when the first is there; with `use_dlx` they are rejected, and RabbitMQ does with them what
    the queue's own dead-letter exchange says.

    A message is known again after a redelivery only if its publisher has given it a `message_id`.
    """

    default_conn_id: ClassVar[str] = "rabbitmq_default"
    identity: ClassVar[tuple[str, ...]] = ("queue_name",)

    queue_name: str
    dead_letter: str | None = None
    use_dlx: bool = False

    @property
    def dead_queue(self) -> str:
        return self.dead_letter or f"{self.queue_name}.dead"


class RabbitPosition(NamedTuple):
    """A message to be answered on the channel it came from, and how often it was delivered."""

    channel: int
    tag: int
    deliveries: int
    message: Any


class RabbitProducer(SharedStreamProducer):
    """The one consumer of a queue. What is to be tried again is kept here: the broker need not send it once more."""

    def __init__(self, reading: RabbitReading) -> None:
        self._reading = reading
        self._pika = client("aio_pika", "rabbitmq")
        self._url = ""
        self._connection: Any = None
        self._channel: Any = None
        self._number = 0
        self._arrived: asyncio.Queue[RabbitPosition | None] = asyncio.Queue()
        self._window = Window(reading.prefetch)
        self._out: set[tuple[int, int]] = set()
        self._has_dead_queue = False

    async def open_stream(self) -> AsyncIterator[tuple[Message, RabbitPosition]]:
        self._url = await self._reading.address(_url_of)
        patience = Patience(self._reading.patience)
        while True:
            try:
                await self._connect()
                patience.succeeded()
                while (position := await self._arrived.get()) is not None:
                    if position.channel == self._number:
                        self._out.add(position[:2])
                        self._window.take()
                        yield self._message(position), position
                    await self._window.room()
                error: Exception = ConnectionError("the connection was closed")
            except (OSError, self._pika.exceptions.AMQPConnectionError) as problem:
                error = problem
            if not await patience.wait():
                raise BrokerUnreachable("RabbitMQ", self._url, error) from error

    async def _connect(self) -> None:
        await self._disconnect()
        self._number += 1
        connection = self._connection = await self._pika.connect(self._url, timeout=10)
        connection.close_callbacks.add(lambda *_: self._lost())
        self._channel = await connection.channel()
        await self._channel.set_qos(prefetch_count=min(self._reading.prefetch, 65535))
        queue = await self._channel.declare_queue(self._reading.queue_name, passive=True)
        number = self._number

        async def arrived(message: Any) -> None:
            count = int((message.headers or {}).get(_COUNT, 0)) + 1
            self._arrived.put_nowait(RabbitPosition(number, message.delivery_tag, count, message))

        await queue.consume(arrived)

    def _lost(self) -> None:
        """What went out on a lost channel comes again on the next one; there is nothing left to say about it."""
        self._window.give_back(len(self._out))
        self._out.clear()
        self._arrived.put_nowait(None)

    def _message(self, position: RabbitPosition) -> Message:
        message = position.message
        headers = message.headers or {}
        about = {
            "queue": self._reading.queue_name,
            "exchange": message.exchange,
            "routing_key": message.routing_key,
            "message_id": message.message_id,
            "type": message.type,
            "headers": {name: _plain(value) for name, value in headers.items() if name != _COUNT},
        }
        return Message(message.body, about)

    # --- what has become of them -------------------------------------------------------------------------------------

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        for item in batch:
            position = item.broker_payload
            if position[:2] in self._out:
                await self._end(item)
                # It may have been lost meanwhile.
                if position[:2] in self._out:
                    self._out.discard(position[:2])
                    self._window.give_back()

    async def _end(self, item: AdvanceItem) -> None:
        position, outcome = item
        match fate_of(outcome, position.deliveries, self._reading.max_deliveries):
            case Fate.DONE:
                await position.message.ack()
            case Fate.AGAIN:
                deliveries = position.deliveries + bool(outcome.failed)
                again = position._replace(deliveries=deliveries)
                loop = asyncio.get_running_loop()
                loop.call_later(self._reading.retry_delay, self._arrived.put_nowait, again)
            case Fate.DEAD if self._reading.use_dlx:
                await position.message.reject(requeue=False)
            case Fate.DEAD:
                await self._bury(position, why_dead(outcome))
                await position.message.ack()

    async def _bury(self, position: RabbitPosition, reason: str) -> None:
        message, queue = position.message, self._reading.dead_queue
        if not self._has_dead_queue:
            await self._channel.declare_queue(queue, durable=True)
            self._has_dead_queue = True
        origin = {"stannel-origin": self._reading.queue_name, "stannel-reason": reason}
        letter = self._pika.Message(
            message.body,
            headers={**(message.headers or {}), **origin},
            message_id=message.message_id,
            type=message.type,
            content_type=message.content_type,
            delivery_mode=self._pika.DeliveryMode.PERSISTENT,
        )
        # Confirmed by the broker, or it raises: only then may the original be acknowledged.
        await self._channel.default_exchange.publish(letter, routing_key=queue, mandatory=True)

    def get_event_identity(self, broker_payload: RabbitPosition) -> str | None:
        message_id = broker_payload.message.message_id
        return f"{self._reading.queue_name}/{message_id}" if message_id else None

    def may_retry_advance(self, error: Exception) -> bool:
        # After that the events are no longer out, and the broker sends them again.
        return isinstance(
            error, OSError | self._pika.exceptions.AMQPError | self._pika.exceptions.ChannelInvalidStateError
        )

    async def aclose(self) -> None:
        await self._disconnect()

    async def _disconnect(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close_callbacks.clear()
            await connection.close()


def _plain(value: Any) -> Any:
    """A header as it can be stored."""
    if isinstance(value, bytes):
        return text_of(value)
    return value if isinstance(value, _PLAIN) else str(value)


def _url_of(connection: Any) -> str:
    login = ""
    if connection.login:
        login = f"{quote(connection.login, safe='')}:{quote(connection.password or '', safe='')}@"
    vhost = f"/{quote(connection.schema, safe='')}" if connection.schema else "/"
    return f"amqp://{login}{connection.host or 'localhost'}:{connection.port or 5672}{vhost}"


class RabbitTrigger(BrokerTrigger):
    """Fires for the messages of a RabbitMQ queue; the arguments are those of `RabbitReading` and `BrokerTrigger`."""

    broker = "rabbitmq"
    reading_class = RabbitReading

    @classmethod
    def producer(cls, reading: Any) -> SharedStreamProducer:
        return RabbitProducer(reading)


class RabbitProvider(BaseMessageQueueProvider):
    """`MessageQueueTrigger(scheme="rabbitmq", queue_name=...)`."""

    scheme = "rabbitmq"

    def trigger_class(self) -> type[RabbitTrigger]:
        return RabbitTrigger
