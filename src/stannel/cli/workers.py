"""Starts workers before anything slow is imported, so that they get ready meanwhile."""

from stannel.executors.base import Executor
from stannel.plugins import load_plugin
from stannel.settings import Settings


def started_executor(settings: Settings) -> Executor:
    """The configured executor, its workers on their way."""
    executor: Executor = load_plugin("stannel.executors", settings.core.executor)(settings)
    executor.start()
    return executor
