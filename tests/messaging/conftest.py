"""The brokers that tests of messaging read: each a real server, started when the first test asks for it."""

from collections.abc import Iterator

import pytest
from support import tools
from support.kafka import running_kafka
from support.nats import running_nats
from support.rabbitmq import running_rabbitmq
from support.redis import running_redis
from support.servers import Server, ServerUnavailable
from support.sqs import running_fake_sqs


@pytest.fixture(scope="module")
def redis_server() -> Iterator[Server]:
    try:
        with running_redis() as server:
            yield server
    except ServerUnavailable as error:
        tools.missing(f"Valkey ({error})")


@pytest.fixture(scope="module")
def nats_server() -> Iterator[Server]:
    try:
        with running_nats() as server:
            yield server
    except ServerUnavailable as error:
        tools.missing(f"NATS ({error})")


@pytest.fixture(scope="module")
def kafka_server() -> Iterator[Server]:
    try:
        with running_kafka() as server:
            yield server
    except ServerUnavailable as error:
        tools.missing(f"Kafka ({error})")


@pytest.fixture(scope="module")
def rabbitmq_server() -> Iterator[Server]:
    try:
        with running_rabbitmq() as server:
            yield server
    except ServerUnavailable as error:
        tools.missing(f"RabbitMQ ({error})")


@pytest.fixture(scope="module")
def fake_sqs() -> Iterator[int]:
    """The port of a fake."""
    with running_fake_sqs() as port:
        yield port
