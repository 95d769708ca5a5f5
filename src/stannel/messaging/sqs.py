"""Amazon SQS: the messages of a queue, deleted once everything made of them is stored, and renewed until then."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Hashable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache
from itertools import islice
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
from stannel.messaging.message import Message, text_of
from stannel.messaging.provider import BaseMessageQueueProvider
from stannel.triggers.asking import EngineRefused
from stannel.triggers.shared_stream import AdvanceItem, SharedStreamProducer

_log = logging.getLogger(__name__)
_BATCH = 10
_LAST_ANSWER_SECONDS = 2.0
# The message was given to somebody else meanwhile, or is gone: there is nothing left to say about it.
_NO_LONGER_MINE = ("ReceiptHandleIsInvalid", "InvalidParameterValue", "MessageNotInflight")


class SqsFailed(StannelError):
    """SQS did not do what it was asked for; the messages stay in the queue."""

    def __init__(self, what: str, code: str) -> None:
        super().__init__(f"SQS did not {what} ({code}); the messages stay in the queue and come again.")


@dataclass(frozen=True, kw_only=True)
class SqsReading(Reading):
    """The messages of `sqs_queue`, a name or a URL. `url` is an endpoint other than Amazon's.

    A message is lent for `visibility` seconds and renewed while it is worked on. One question waits `wait` seconds for
    messages; with 0 there is one every `poll_interval` seconds. Dead letters go to `dead_letter`, or where the queue's
    redrive policy says, or to `<queue>-dead`, which is made then. Without a connection, credentials and region are
    looked for as the AWS tools do.
    """

    default_conn_id: ClassVar[str] = "aws_default"
    identity: ClassVar[tuple[str, ...]] = ("sqs_queue", "region")

    sqs_queue: str
    region: str | None = None
    dead_letter: str | None = None
    visibility: int = 60
    wait: int = 20
    poll_interval: float = 1.0

    async def settings(self) -> dict[str, Any]:
        """What the client library is given."""
        given: dict[str, Any] = {"region_name": self.region, "endpoint_url": self.url}
        if self.url is None:
            try:
                connection = await self.connection()
            except EngineRefused as refusal:
                if self.conn_id is not None or not refusal.is_not_found:
                    raise
            else:
                extra = msgspec.json.decode(connection.extra or "{}", type=dict[str, Any])
                given["aws_access_key_id"], given["aws_secret_access_key"] = connection.login, connection.password
                given |= {name: extra[name] for name in ("region_name", "endpoint_url") if name in extra}
        return {name: value for name, value in given.items() if value}


class SqsPosition(NamedTuple):
    """A message's lasting id, the receipt of this delivery, and itself."""

    id: str
    receipt: str
    deliveries: int
    message: dict[str, Any]


class SqsProducer(SharedStreamProducer):
    """Asks with long polls. What it has not told about when it is closed is put back at once."""

    def __init__(self, reading: SqsReading) -> None:
        self._reading = reading
        self._session = _session()
        self._errors = client("botocore.exceptions", "sqs")
        self._stack = AsyncExitStack()
        self._sqs: Any = None
        self._queue = self._dead_queue = ""
        self._window = Window(reading.prefetch)
        self._out: dict[str, SqsPosition] = {}
        self._receiving: asyncio.Task[Any] | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def open_stream(self) -> AsyncIterator[tuple[Message, SqsPosition]]:
        settings = await self._reading.settings()
        self._sqs = await self._stack.enter_async_context(self._session.create_client("sqs", **settings))
        self._queue = await self._url_of(self._reading.sqs_queue)
        self._renewing = asyncio.create_task(self._renew())
        patience = Patience(self._reading.patience)
        while True:
            try:
                # In a task of its own: were it cancelled, what it has been given would be missing for a while.
                self._receiving = self._receiving or asyncio.create_task(self._receive())
                answer = await asyncio.shield(self._receiving)
                self._receiving = None
            except (self._errors.BotoCoreError, OSError) as error:
                self._receiving = None
                if not await patience.wait():
                    raise BrokerUnreachable("SQS", self._queue, error) from error
                continue
            patience.succeeded()
            if not answer.get("Messages") and not self._reading.wait:
                await asyncio.sleep(self._reading.poll_interval)
            # All of them are out before the first is given on: whatever happens then, none is forgotten.
            for position in self._taken(answer):
                yield self._message(position), position
            await self._window.room()

    def _taken(self, answer: dict[str, Any]) -> list[SqsPosition]:
        """The new messages. One that came again in spite of everything is told about with its newest receipt."""
        found = [_position(message) for message in answer.get("Messages", ())]
        new = [position for position in found if position.id not in self._out]
        self._out |= {position.id: position for position in found}
        self._window.take(len(new))
        return new

    async def _receive(self) -> Any:
        return await self._sqs.receive_message(
            QueueUrl=self._queue,
            MaxNumberOfMessages=_BATCH,
            WaitTimeSeconds=self._reading.wait,
            VisibilityTimeout=self._reading.visibility,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )

    async def _url_of(self, queue: str) -> str:
        if "://" in queue:
            return queue
        return str((await self._sqs.get_queue_url(QueueName=queue))["QueueUrl"])

    def _message(self, position: SqsPosition) -> Message:
        found = position.message
        attributes = found.get("MessageAttributes", {})
        about = {
            "queue": self._reading.sqs_queue,
            "message_id": position.id,
            "headers": {name: text_of(_content(value)) for name, value in attributes.items()},
            "group": found.get("Attributes", {}).get("MessageGroupId"),
            "sent": int(found.get("Attributes", {}).get("SentTimestamp", 0)),
        }
        return Message(found["Body"].encode(), about, key=about["group"])

    async def _renew(self) -> None:
        """Keep what is out from being given to somebody else."""
        while True:
            await asyncio.sleep(self._reading.visibility / 3)
            try:
                await self._set_visibility([*self._out.values()], self._reading.visibility)
            except (self._errors.BotoCoreError, self._errors.ClientError, SqsFailed, OSError) as error:
                _log.warning("Messages of SQS could not be renewed; they may come again: %s", error)

    # --- what has become of them -------------------------------------------------------------------------------------

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        done, again = [], []
        for position, outcome in batch:
            newest = self._out.get(position.id)
            if newest is None:
                continue
            match fate_of(outcome, newest.deliveries, self._reading.max_deliveries):
                case Fate.DONE:
                    done.append(newest)
                case Fate.AGAIN:
                    again.append(newest)
                case Fate.DEAD:
                    await self._bury(newest, why_dead(outcome))
                    done.append(newest)
        for some in _tens(done):
            entries = [{"Id": str(n), "ReceiptHandle": position.receipt} for n, position in enumerate(some)]
            answer = await self._sqs.delete_message_batch(QueueUrl=self._queue, Entries=entries)
            _check(answer, "delete messages")
            self._forget(some)
        # Forgotten first: it may be back before the answer to this is.
        self._forget(again)
        await self._set_visibility(again, math.ceil(self._reading.retry_delay))

    def _forget(self, told: Sequence[SqsPosition]) -> None:
        for position in told:
            if self._out.pop(position.id, None) is not None:
                self._window.give_back()

    async def _set_visibility(self, lent: Sequence[SqsPosition], seconds: int) -> None:
        for some in _tens(lent):
            entries = [
                {"Id": str(n), "ReceiptHandle": position.receipt, "VisibilityTimeout": seconds}
                for n, position in enumerate(some)
            ]
            answer = await self._sqs.change_message_visibility_batch(QueueUrl=self._queue, Entries=entries)
            _check(answer, "change the time for which messages are lent")

    async def _bury(self, position: SqsPosition, reason: str) -> None:
        self._dead_queue = self._dead_queue or await self._find_dead_queue()
        attributes = dict(islice(position.message.get("MessageAttributes", {}).items(), 8))
        attributes["stannel-reason"] = {"DataType": "String", "StringValue": reason}
        attributes["stannel-origin"] = {"DataType": "String", "StringValue": f"{self._queue}/{position.id}"}
        letter = {"QueueUrl": self._dead_queue, "MessageBody": position.message["Body"]}
        if self._dead_queue.endswith(".fifo"):
            group = position.message.get("Attributes", {}).get("MessageGroupId", "stannel")
            letter |= {"MessageGroupId": group, "MessageDeduplicationId": position.id}
        await self._sqs.send_message(**letter, MessageAttributes=attributes)

    async def _find_dead_queue(self) -> str:
        if self._reading.dead_letter is not None:
            return await self._url_of(self._reading.dead_letter)
        answer = await self._sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["RedrivePolicy"])
        policy = msgspec.json.decode(answer.get("Attributes", {}).get("RedrivePolicy", "{}"), type=dict[str, Any])
        if "deadLetterTargetArn" in policy:
            return await self._url_of(policy["deadLetterTargetArn"].rpartition(":")[2])
        name, is_fifo = self._queue.rpartition("/")[2], self._queue.endswith(".fifo")
        dead = f"{name.removesuffix('.fifo')}-dead{'.fifo' if is_fifo else ''}"
        kind = {"FifoQueue": "true"} if is_fifo else {}
        return str((await self._sqs.create_queue(QueueName=dead, Attributes=kind))["QueueUrl"])

    def get_advance_lane(self, broker_payload: SqsPosition) -> Hashable:
        group: str | None = broker_payload.message.get("Attributes", {}).get("MessageGroupId")
        return group

    def get_event_identity(self, broker_payload: SqsPosition) -> str:
        return f"{self._reading.sqs_queue}/{broker_payload.id}"

    def may_retry_advance(self, error: Exception) -> bool:
        return isinstance(error, self._errors.BotoCoreError | SqsFailed | OSError)

    async def aclose(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        try:
            await self._give_back()
        finally:
            await self._stack.aclose()

    async def _give_back(self) -> None:
        """Whoever reads next need not wait until the messages' time is over."""
        if self._receiving is not None:
            await asyncio.wait([self._receiving], timeout=_LAST_ANSWER_SECONDS)
            if not self._receiving.done():
                self._receiving.cancel()
                await asyncio.wait([self._receiving])
            elif not self._receiving.cancelled() and self._receiving.exception() is None:
                found = [_position(one) for one in self._receiving.result().get("Messages", ())]
                self._out |= {position.id: position for position in found}
        await self._set_visibility([*self._out.values()], 0)


@cache
def _session() -> Any:
    """One for the process: reading the description of SQS takes long."""
    return client("aiobotocore.session", "sqs").get_session()


def _position(found: dict[str, Any]) -> SqsPosition:
    count = int(found.get("Attributes", {}).get("ApproximateReceiveCount", 1))
    return SqsPosition(found["MessageId"], found["ReceiptHandle"], count, found)


def _content(attribute: dict[str, Any]) -> bytes | str | None:
    return attribute.get("StringValue", attribute.get("BinaryValue"))


def _tens(positions: Sequence[SqsPosition]) -> Iterator[list[SqsPosition]]:
    left = iter(positions)
    while some := list(islice(left, _BATCH)):
        yield some


def _check(answer: dict[str, Any], what: str) -> None:
    for failure in answer.get("Failed", ()):
        if failure["Code"] not in _NO_LONGER_MINE:
            raise SqsFailed(what, failure["Code"])
        _log.info("SQS did not %s: %s. It was given to somebody else meanwhile.", what, failure["Code"])


class SqsTrigger(BrokerTrigger):
    """Fires for the messages of an SQS queue; the arguments are those of `SqsReading` and `BrokerTrigger`."""

    broker = "sqs"
    reading_class = SqsReading
    aliases: ClassVar[dict[str, str]] = {
        "aws_conn_id": "conn_id",
        "region_name": "region",
        "visibility_timeout": "visibility",
        "wait_time_seconds": "wait",
    }
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"delete_message_on_reception", "max_messages", "num_batches", "waiter_delay"}
    )

    @classmethod
    def producer(cls, reading: Any) -> SharedStreamProducer:
        return SqsProducer(reading)


class SqsProvider(BaseMessageQueueProvider):
    """`MessageQueueTrigger(scheme="sqs", sqs_queue=...)`."""

    scheme = "sqs"

    def trigger_class(self) -> type[SqsTrigger]:
        return SqsTrigger

    def queue_matches(self, queue: str) -> bool:
        return ".amazonaws.com/" in queue and "sqs" in queue

    def trigger_kwargs(self, queue: str | None, **kwargs: Any) -> dict[str, Any]:
        return {} if queue is None else {"sqs_queue": queue}
