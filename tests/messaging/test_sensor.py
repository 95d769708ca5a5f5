"""A task that waits for one message."""

import pytest

from stannel.messaging import MessageQueueSensor
from stannel.messaging.redis import RedisStreamTrigger
from stannel.sdk import DAG
from stannel.sdk.compile import compile_dag


def test_arguments_are_those_of_the_task_and_those_of_the_trigger() -> None:
    with DAG("waits", schedule=None) as dag:
        sensor = MessageQueueSensor(task_id="wait", scheme="redis", streams="orders", retries=3, timeout=60)
    assert (sensor.retries, sensor.timeout) == (3, 60)
    assert sensor.trigger_for({}).serialize() == RedisStreamTrigger(streams="orders").serialize()
    assert [task.task_id for task in compile_dag(dag, fileloc="waits.py").tasks] == ["wait"]


def test_a_wrong_argument_is_found_while_the_file_is_read() -> None:
    with pytest.raises(TypeError, match="RedisStreamTrigger has no argument 'stream'"):
        MessageQueueSensor(task_id="wait", scheme="redis", stream="orders")


def test_the_message_is_what_the_task_leaves_behind() -> None:
    sensor = MessageQueueSensor(task_id="wait", scheme="redis", streams="orders")
    assert sensor.execute_complete({}, {"value": {"id": 7}}) == {"value": {"id": 7}}
