"""For tests of DAGs and of Stannel itself: a whole engine in a folder of its own, and a broker in memory."""

from stannel.testing.engine import Engine
from stannel.testing.memory_broker import MemoryBroker, MemoryLogProducer, MemoryPosition, MemoryProducer

__all__ = ["Engine", "MemoryBroker", "MemoryLogProducer", "MemoryPosition", "MemoryProducer"]
