"""Brokers: each a file with a producer, a trigger and a scheme, found by entry point and imported by nobody."""

from stannel.messaging.message import Message
from stannel.messaging.provider import BaseMessageQueueProvider
from stannel.messaging.queue import MessageQueueTrigger
from stannel.messaging.sensor import MessageQueueSensor

__all__ = ["BaseMessageQueueProvider", "Message", "MessageQueueSensor", "MessageQueueTrigger"]
