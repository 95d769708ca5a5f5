"""Brings the store up to date with the DAG folder: forgets what is gone, imports what is stale, newest first."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, TypeVar

from stannel.errors import StannelError
from stannel.parser.imports import Imported, Imports
from stannel.parser.picture import Picture
from stannel.settings import Settings
from stannel.store import Store
from stannel.store.dags import ParsedFile

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class Work:
    """The files that wait to be imported, are being imported, or have clashed. Belongs to one running event loop."""

    def __init__(self, store: Store, settings: Settings, imports: Imports) -> None:
        self._store, self._imports = store, imports
        self._folder = settings.core.dags_folder
        self._most = settings.dag_processor.parsing_processes
        self._starts_paused = settings.core.dags_are_paused_at_creation
        # One thread for the disk and one for the store: the loop waits for neither.
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="parser-disk")
        self._memory = ThreadPoolExecutor(1, thread_name_prefix="parser-store")
        self._picture: Picture | None = None
        self._opening = asyncio.Lock()
        self._queue: list[str] = []
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._importing = 0
        self._clashes: dict[str, ParsedFile] = {}
        self._ids_moved = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._has_changed = True
        self._counts: dict[str, int] = {}
        self.failures: list[Exception] = []
        self.on_idle: Callable[[], None] = _nothing

    @property
    def is_idle(self) -> bool:
        return self._idle.is_set()

    async def look(self) -> None:
        """Find out what has changed, and begin to bring the store up to date."""
        changes = await self.on_disk((await self._open()).look)
        for path in changes.gone:
            if path not in self._busy:
                await self.remove(path)
        self.enqueue(changes.stale)
        if self.is_idle:
            await self.settle_clashes()

    def enqueue(self, paths: Iterable[str]) -> None:
        """Import these files, in this order, instead of those that were waiting."""
        self._queue = [path for path in paths if path not in self._busy]
        self._fill()

    async def remove(self, path: str) -> None:
        """Forget a file; its DAGs leave the schedule."""
        gone = await self.in_store(self._store.dags.remove_file, path)
        (await self._open()).removed(path)
        self._clashes.pop(path, None)
        self._ids_moved = self._has_changed = True
        log.info("The DAG file %s is gone, and with it %s", path, ", ".join(gone) or "no DAG")

    async def settled(self) -> None:
        """Return when nothing waits and nothing is being imported."""
        await self._idle.wait()

    async def settle_clashes(self) -> None:
        """Store again what clashed: a DAG that moves to another file may arrive there before the old one lets go."""
        while self._clashes and self._ids_moved:
            self._ids_moved = False
            try:
                for file in list(self._clashes.values()):
                    await self._save(file)
            except BaseException:
                self._ids_moved = True
                raise

    async def in_store(self, verb: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Result:
        """Call a verb of the store without holding up the loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._memory, lambda: verb(*args, **kwargs))

    async def close(self) -> None:
        """Give up what is under way."""
        self._queue.clear()
        for task in (tasks := list(self._busy.values())):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._disk.shutdown()
        self._memory.shutdown()

    async def on_disk(self, function: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Result:
        """Call a function that reads files without holding up the loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._disk, lambda: function(*args, **kwargs))

    async def counts(self) -> dict[str, int]:
        """How many files, DAGs and errors there are, for those who look at the lease."""
        if self._has_changed:
            files = await self.in_store(self._store.dags.files)
            self._has_changed = not self.is_idle
            errors = sum(file.error is not None for file in files)
            self._counts = {"files": len(files), "dags": sum(file.dag_count for file in files), "errors": errors}
        return self._counts

    async def _open(self) -> Picture:
        async with self._opening:
            if self._picture is None:
                stored = await self.in_store(self._store.dags.files)
                self._picture = Picture(self._folder, [file.path for file in stored])
        return self._picture

    def _fill(self) -> None:
        while self._queue and self._importing < self._most:
            path = self._queue.pop(0)
            self._importing += 1
            self._idle.clear()
            self._busy[path] = asyncio.create_task(self._bring_up_to_date(path))

    async def _bring_up_to_date(self, path: str) -> None:
        try:
            await self._import(path)
        except StannelError as error:
            self.failures.append(error)
        except Exception as error:
            log.exception("The parser met a bug in itself at %s", path)
            self.failures.append(error)
        finally:
            del self._busy[path]
            if not self._queue and not self._busy:
                self._idle.set()
                self.on_idle()

    async def _import(self, path: str) -> None:
        try:
            picture = await self._open()
            begun = await self.on_disk(picture.begin, path)
            found = await self._imports.run(path)
        finally:
            self._importing -= 1
            self._fill()
        fingerprint = await self.on_disk(picture.imported, begun, found.dependencies, misses_module=found.misses_module)
        try:
            await self._save(_parsed(path, fingerprint, found))
        except BaseException:
            picture.doubt(path)
            raise
        self._ids_moved = True

    async def _save(self, file: ParsedFile) -> None:
        self._has_changed = True
        error = await self.in_store(self._store.dags.save_file, file, now=datetime.now(UTC), paused=self._starts_paused)
        if error == file.error:
            self._ids_moved |= self._clashes.pop(file.path, None) is not None
        else:
            self._clashes[file.path] = file
        if error is not None:
            log.warning("%s", error.partition("\n")[0])
        else:
            names = ", ".join(spec.dag_id for spec in file.dags) or "no DAG"
            log.info("The DAG file %s holds %s (%.0f ms)", file.path, names, file.seconds * 1000)


def _nothing() -> None:
    """For those who wait for `settled` instead."""


def _parsed(path: str, fingerprint: str, found: Imported) -> ParsedFile:
    return ParsedFile(
        path=path,
        fingerprint=fingerprint,
        dags=found.dags,
        dependencies=found.dependencies,
        error=found.error,
        seconds=found.seconds,
    )
