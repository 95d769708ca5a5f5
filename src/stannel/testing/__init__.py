"""For tests of DAGs and of Stannel itself: a whole engine in a folder of its own."""

from stannel.testing.engine import Engine

__all__ = ["Engine"]
