"""Imports the code of triggers in threads: a slow import delays its own triggers and no others."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from stannel.errors import StannelError
from stannel.triggerer.host.code import Code
from stannel.triggers.base import BaseTrigger

_IMPORT_SECONDS = 60.0
_THREADS = 4


class ImportTookTooLong(StannelError):
    """The code of a trigger could not be imported in time; whoever waits for it is told."""

    def __init__(self, classpath: str) -> None:
        super().__init__(f"Importing the code of {classpath} took more than {_IMPORT_SECONDS:g} seconds.")


class Imports:
    """One import per class path, however many triggers wait for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, code: Code, on_import: Callable[[], None]) -> None:
        self._loop, self._code, self._on_import = loop, code, on_import
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="import")
        self._under_way: dict[str, asyncio.Future[type[BaseTrigger]]] = {}

    async def find(self, classpath: str) -> type[BaseTrigger]:
        """The class; at once if it is known. What its import raises is raised here."""
        known = self._code.known(classpath)
        if known is not None:
            return known
        future = self._under_way.get(classpath)
        if future is None:
            # Lines written by the import belong to the trigger that was first to need it.
            context = contextvars.copy_context()
            future = self._loop.run_in_executor(self._threads, context.run, self._code.find, classpath)
            self._under_way[classpath] = future
            future.add_done_callback(lambda done: self._ended(classpath, done))
        done, _ = await asyncio.wait({future}, timeout=_IMPORT_SECONDS)
        if not done:
            raise ImportTookTooLong(classpath)
        return future.result()

    def _ended(self, classpath: str, future: asyncio.Future[type[BaseTrigger]]) -> None:
        self._under_way.pop(classpath, None)
        # Looked at, even if nobody waits any more: otherwise the loop complains about it.
        future.exception()
        self._on_import()
