"""Kafka's dead letters: a topic beside the one a message came from, made when the first letter is there."""

import logging
from typing import Any

from stannel.messaging.broker import client

_log = logging.getLogger(__name__)


class DeadLetters:
    """Writes dead letters, one at a time; to be used from one thread."""

    def __init__(self, settings: dict[str, Any], patience: float) -> None:
        self._kafka = client("confluent_kafka", "kafka")
        self._settings, self._patience = {**settings, "logger": _log}, patience
        self._producer = self._kafka.Producer({**self._settings, "enable.idempotence": True})
        self._known: set[str] = set()

    def send(self, topic: str, message: Any, origin: str, reason: str) -> None:
        """Return when the cluster has the letter; raise when it has not."""
        self._ensure(topic)
        headers = [*(message.headers() or ()), ("stannel-origin", origin), ("stannel-reason", reason)]
        problems: list[Any] = []
        self._producer.produce(
            topic,
            message.value(),
            message.key(),
            headers=headers,
            on_delivery=lambda error, _: problems.append(error),
        )
        self._producer.flush(self._patience)
        # No answer at all is an error too: the letter may not be there.
        error = problems[0] if problems else self._kafka.KafkaError(self._kafka.KafkaError._TIMED_OUT)
        if error is not None:
            raise self._kafka.KafkaException(error)

    def _ensure(self, topic: str) -> None:
        if topic in self._known:
            return
        found = self._producer.list_topics(topic, timeout=self._patience).topics[topic]
        if found.error is not None:
            admin = client("confluent_kafka.admin", "kafka")
            new = admin.NewTopic(topic, num_partitions=1, replication_factor=-1)
            cluster = admin.AdminClient(self._settings)
            self._await(cluster.create_topics([new], operation_timeout=self._patience)[topic])
        self._known.add(topic)

    def _await(self, making: Any) -> None:
        try:
            making.result(timeout=self._patience)
        except self._kafka.KafkaException as error:
            if error.args[0].code() != self._kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise
