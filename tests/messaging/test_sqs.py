"""Amazon SQS against a fake, moto's server; where that is laxer than Amazon, answers are given as Amazon gives them."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiobotocore.session import get_session

from stannel.messaging.sqs import SqsFailed, SqsProducer, SqsReading, SqsTrigger, _check
from stannel.testing.producer_conformance import (
    ACCEPTED,
    FAILED,
    REJECTED,
    BrokerInTest,
    OpenStream,
    ProducerConformance,
)
from stannel.triggers.shared_stream import SharedStreamProducer

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")


class Queue(BrokerInTest):
    """A standard queue, in which order is not promised."""

    keeps_order_on_reopening = False
    many = 25
    reading: SqsReading

    def __init__(self, client: Any, port: int, name: str) -> None:
        self.client, self.name = client, name
        self.url = ""
        self.reading = SqsReading(
            url=f"http://127.0.0.1:{port}", region="eu-central-1", sqs_queue=name, wait=0, poll_interval=0.05,
            max_deliveries=self.max_deliveries, retry_delay=0,
        )  # fmt: skip

    def producer(self) -> SharedStreamProducer:
        return SqsProducer(self.reading)

    async def publish(self, text: str, lane: str) -> None:
        await self.client.send_message(QueueUrl=self.url, MessageBody=text)

    def text_of(self, raw_event: Any) -> str:
        return str(raw_event.value)

    async def dead_letters(self) -> list[str]:
        return [letter["Body"] for letter in await self.dead_messages()]

    async def dead_messages(self, name: str = "") -> list[Any]:
        try:
            found = await self.client.get_queue_url(QueueName=name or f"{self.name}-dead")
        except self.client.exceptions.QueueDoesNotExist:
            return []
        answer = await self.client.receive_message(
            QueueUrl=found["QueueUrl"], VisibilityTimeout=0, MessageAttributeNames=["All"], MaxNumberOfMessages=10
        )
        return list(answer.get("Messages", ()))


@asynccontextmanager
async def queue(port: int, **attributes: str) -> AsyncIterator[Queue]:
    settings = {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": "eu-central-1"}
    async with get_session().create_client("sqs", **settings) as client:
        suffix = ".fifo" if "FifoQueue" in attributes else ""
        broker = Queue(client, port, f"test-{next(_numbers)}{suffix}")
        broker.url = (await client.create_queue(QueueName=broker.name, Attributes=attributes))["QueueUrl"]
        yield broker


@asynccontextmanager
async def opened(broker: BrokerInTest) -> AsyncIterator[OpenStream]:
    stream = OpenStream(broker, patience=15)
    try:
        yield stream
    finally:
        await stream.abandon()


class TestSqsProducer(ProducerConformance):
    @pytest.fixture(autouse=True)
    def _server(self, fake_sqs: int) -> None:
        self.port = fake_sqs

    def broker(self) -> Any:
        return queue(self.port)


async def test_a_message_that_takes_longer_than_it_is_lent_is_renewed(fake_sqs: int) -> None:
    async with queue(fake_sqs) as broker:
        broker.reading = replace(broker.reading, visibility=1, retry_delay=2, max_deliveries=5)
        async with opened(broker) as stream:
            await broker.publish("slow", "a")
            await broker.publish("clock", "a")
            came = await stream.take(2)
            # The queue gives this one back after twice the time for which the other is lent.
            await stream.settle([came["clock"]], FAILED)
            assert list(await stream.take(1)) == ["clock"]
            producer: Any = stream.producer
            assert producer._out[came["slow"].id].deliveries == 1


async def test_a_question_that_waits_is_answered_when_a_message_comes(fake_sqs: int) -> None:
    async with queue(fake_sqs) as broker:
        broker.reading = replace(broker.reading, wait=1)
        async with opened(broker) as stream:
            await broker.publish("event", "a")
            came = await stream.take(1)
            await stream.settle([came["event"]], ACCEPTED)
            await broker.publish("next", "a")
            assert list(await stream.take(1)) == ["next"]


async def test_dead_letters_go_where_the_queue_itself_sends_them(fake_sqs: int) -> None:
    async with queue(fake_sqs) as target:
        asked = await target.client.get_queue_attributes(QueueUrl=target.url, AttributeNames=["QueueArn"])
        policy = {"deadLetterTargetArn": asked["Attributes"]["QueueArn"], "maxReceiveCount": 99}
        async with queue(fake_sqs, RedrivePolicy=json.dumps(policy)) as broker, opened(broker) as stream:
            await broker.publish("bad", "a")
            came = await stream.take(1)
            await stream.settle([came["bad"]], REJECTED)
            [letter] = await broker.dead_messages(target.name)
            words = letter["MessageAttributes"]["stannel-reason"]["StringValue"]
            assert (letter["Body"], words) == ("bad", "1 of 1 subscribers rejected it")


async def test_the_groups_of_a_fifo_queue_are_lanes(fake_sqs: int) -> None:
    async with queue(fake_sqs, FifoQueue="true") as broker, opened(broker) as stream:
        for number, group in enumerate("ab"):
            await broker.client.send_message(
                QueueUrl=broker.url, MessageBody=group, MessageGroupId=group, MessageDeduplicationId=str(number)
            )
        came = await stream.take(2)
        lane_of = stream.producer.get_advance_lane
        assert {text: lane_of(position) for text, position in came.items()} == {"a": "a", "b": "b"}
        await stream.settle([came["a"]], REJECTED)
        assert [letter["Body"] for letter in await broker.dead_messages(f"{broker.name[:-5]}-dead.fifo")] == ["a"]


def test_a_receipt_that_is_no_longer_good_is_passed_over_and_other_failures_are_not() -> None:
    _check({"Failed": [{"Id": "0", "Code": "ReceiptHandleIsInvalid", "SenderFault": True}]}, "delete messages")
    with pytest.raises(SqsFailed, match=r"SQS did not delete messages \(InternalError\)"):
        _check({"Failed": [{"Id": "0", "Code": "InternalError", "SenderFault": False}]}, "delete messages")


async def test_a_message_that_came_again_is_deleted_by_its_newest_receipt(fake_sqs: int) -> None:
    async with queue(fake_sqs) as broker, opened(broker) as stream:
        await broker.publish("event", "a")
        came = await stream.take(1)
        producer: Any = stream.producer
        # As if it had been lent to nobody for a moment: the same producer receives it once more.
        await producer._set_visibility([came["event"]], 0)
        async with asyncio.timeout(15):
            while producer._out[came["event"].id].receipt == came["event"].receipt:
                await asyncio.sleep(0.02)
        await stream.settle([came["event"]], ACCEPTED)
        await broker.publish("next", "a")
        assert list(await stream.take(1)) == ["next"]


async def test_a_message_says_what_is_known_about_it(fake_sqs: int) -> None:
    async with queue(fake_sqs) as broker:
        attributes = {"trace": {"DataType": "String", "StringValue": "x"}}
        await broker.client.send_message(QueueUrl=broker.url, MessageBody='{"id": 7}', MessageAttributes=attributes)
        producer = SqsProducer(broker.reading)
        stream: Any = producer.open_stream()
        message, position = await anext(stream)
        await stream.aclose()
        await producer.aclose()
        payload = message.payload()
        assert payload.pop("sent") > 0
        assert payload == {
            "value": {"id": 7}, "queue": broker.name, "message_id": position.id, "headers": {"trace": "x"},
            "group": None,
        }  # fmt: skip


def test_names_known_from_elsewhere_are_understood() -> None:
    trigger = SqsTrigger(sqs_queue="q", aws_conn_id="mine", wait_time_seconds=5, max_messages=5)
    assert trigger.serialize()[1] == {"sqs_queue": "q", "conn_id": "mine", "wait": 5}
