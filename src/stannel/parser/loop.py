"""The parser: watches the DAG folder and keeps the store's picture of it current."""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from stannel.errors import ImportFailed, StannelError
from stannel.model.ids import new_id
from stannel.parser.imports import Imports
from stannel.parser.rounds import Rounds
from stannel.parser.work import Work
from stannel.settings import Settings
from stannel.store import Store
from stannel.store.dags import FileStatus
from stannel.supervisor.environment import for_authors

log = logging.getLogger(__name__)


class Parser:
    """One parser. `run` blocks the thread that calls it, which need not be the main one.

    `ready` is set once every file was read, or those that are left take unusually long.
    """

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self.owner = f"parser-{new_id()[-12:]}"
        self.ready = threading.Event()
        self._stopping = threading.Event()
        self._wake: Callable[[], None] | None = None

    def run(self, stop: threading.Event | None = None) -> None:
        """Work until stopped. An error is logged and the work goes on; `stop` is noticed at the next heartbeat."""
        try:
            with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                runner.run(self._run(stop or self._stopping))
        finally:
            self._leave()

    def stop(self) -> None:
        """Have `run` return at once."""
        self._stopping.set()
        # The loop may end at this very moment, and then there is nobody to wake.
        with contextlib.suppress(RuntimeError):
            if self._wake is not None:
                self._wake()

    async def _run(self, stop: threading.Event) -> None:
        settings = self._settings
        imports = _imports(settings)
        imports.warm_up()
        work = Work(self._store, settings, imports)
        folder, refresh = settings.core.dags_folder, settings.dag_processor.refresh_interval
        rounds = Rounds(folder, work, imports, refresh=refresh)
        self._wake = rounds.wake
        beating = asyncio.create_task(self._beat(work))
        try:
            while not (self._stopping.is_set() or stop.is_set()):
                await rounds.do_what_is_due()
                if rounds.is_ready:
                    self.ready.set()
                await rounds.sleep(settings.scheduler.scheduler_heartbeat_sec)
        finally:
            beating.cancel()
            rounds.close()
            await work.close()
            await imports.close()

    async def _beat(self, work: Work) -> None:
        """Keep the lease, which says that somebody reads the files, and what came of it."""
        while True:
            try:
                await work.in_store(self._keep_lease, await work.counts())
            except StannelError as error:
                log.error("The parser cannot renew its lease and tries again: %s", error)
            await asyncio.sleep(self._settings.scheduler.scheduler_heartbeat_sec)

    def _keep_lease(self, detail: dict[str, int]) -> None:
        leases, seconds, now = self._store.leases, self._settings.scheduler.lease_seconds, datetime.now(UTC)
        if leases.renew(self.owner, now=now, seconds=seconds, detail=detail):
            return
        hostname = self._settings.core.hostname or os.uname().nodename
        leases.take(self.owner, "parser", hostname=hostname, pid=os.getpid(), now=now, seconds=seconds)

    def _leave(self) -> None:
        try:
            self._store.leases.release(self.owner)
        except StannelError as error:
            log.warning("The parser's lease could not be released and will run out: %s", error)


def parse_once(store: Store, settings: Settings, paths: Sequence[Path] | None = None) -> list[FileStatus]:
    """Import the whole DAG folder, or only these files of it, and return what the store then says of them.

    Must not be called from a running event loop.
    """
    wanted = None if paths is None else [_fileloc(path, settings.core.dags_folder) for path in paths]
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(_parse_once(store, settings, wanted))
    return [file for file in store.dags.files() if wanted is None or file.path in wanted]


async def _parse_once(store: Store, settings: Settings, wanted: list[str] | None) -> None:
    imports = _imports(settings)
    imports.warm_up()
    work = Work(store, settings, imports)
    try:
        if wanted is None:
            await work.look()
        else:
            for path in wanted:
                if not (settings.core.dags_folder / path).exists():
                    await work.remove(path)
            work.enqueue(path for path in wanted if (settings.core.dags_folder / path).exists())
        await work.settled()
        await work.settle_clashes()
        if work.failures:
            raise work.failures[0]
    finally:
        await work.close()
        await imports.close()


def _imports(settings: Settings) -> Imports:
    folder = settings.core.dags_folder
    # Where it cannot be made, it is waited for.
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    seconds = min(settings.core.dagbag_import_timeout, settings.dag_processor.dag_file_processor_timeout)
    return Imports(folder, seconds=seconds, environ=for_authors(os.environ, settings))


def _fileloc(path: Path, folder: Path) -> str:
    for file, base in ((path.absolute(), folder.absolute()), (path.resolve(), folder.resolve())):
        if file.is_relative_to(base):
            return file.relative_to(base).as_posix()
    raise ImportFailed(str(path), f"it is not in the DAG folder {folder}")
