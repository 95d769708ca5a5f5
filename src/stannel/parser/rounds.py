"""When the parser looks at the DAG folder: after a change and once it has settled, and now and then anyway."""

import asyncio
import contextlib
import logging
from pathlib import Path

from stannel.errors import StannelError
from stannel.parser.imports import Imports
from stannel.parser.watch import Watch
from stannel.parser.work import Work

log = logging.getLogger(__name__)

_PAUSE_AFTER_ERROR = 1.0
_LONGEST_PAUSE = 5.0
# A burst of changes may go on after the first look at it, in a new folder even unheard.
_SETTLE_SECONDS = 0.25
_UNWATCHED_SECONDS = 1.0
# Looking takes longer the more files there are; it shall never be what this machine does most.
_REST_PER_LOOK = 5
# A fork server is ready again within half a second, which an edit after a long pause can wait for.
_IDLE_SECONDS = 60.0
# One file that hangs shall not keep a whole engine from being ready.
_PATIENCE_SECONDS = 3.0


class Rounds:
    """The order of looks and rests. Belongs to one running event loop."""

    def __init__(self, folder: Path, work: Work, imports: Imports, *, refresh: float) -> None:
        self._folder, self._work, self._imports, self._refresh = folder, work, imports, refresh
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._watch: Watch | None = None
        self._look_at = self._rest_until = self._busy_at = self._loop.time()
        self._is_settling = False
        self._has_complained = False
        self._troubles = 0
        self._patient_until = self._loop.time() + _PATIENCE_SECONDS
        self._has_read_all = False
        work.on_idle = self._imports_done

    @property
    def is_ready(self) -> bool:
        """Whether every file was read once, or those that are left take unusually long."""
        return self._has_read_all or self._loop.time() > self._patient_until

    async def do_what_is_due(self) -> None:
        """Look if it is time to; whatever goes wrong is told, and tried again."""
        try:
            self._report_failures()
            if self._loop.time() >= max(self._look_at, self._rest_until):
                await self._look()
            await self._save_memory()
        except StannelError as error:
            log.error("The parser could not go on and tries again: %s", error)
            self._rest_after_trouble()
        except Exception:
            log.exception("The parser met a bug in itself and tries again")
            self._rest_after_trouble()

    async def sleep(self, longest: float) -> None:
        """Wait until something is due, or for `longest` seconds."""
        pause = min(max(self._look_at, self._rest_until) - self._loop.time(), longest)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(pause, 0)):
                await self._woken.wait()
        self._woken.clear()

    def wake(self) -> None:
        """Have `sleep` return; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._woken.set)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    async def _look(self) -> None:
        started = self._loop.time()
        # What is not heard from here on is seen by the look that follows.
        await self._keep_watching()
        pause = self._refresh if self._watch is not None else min(self._refresh, _UNWATCHED_SECONDS)
        self._look_at = started + (_SETTLE_SECONDS if self._is_settling else pause)
        self._is_settling = False
        await self._work.look()
        ended = self._loop.time()
        self._rest_until = ended + _REST_PER_LOOK * (ended - started)
        if self._work.is_idle:
            self._has_read_all = True
            self._troubles = 0

    async def _keep_watching(self) -> None:
        if self._watch is not None and self._watch.is_current():
            return
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        try:
            self._watch = await self._work.on_disk(Watch, self._folder, self._heard)
            self._has_complained = False
        except OSError as error:
            if not self._has_complained:
                log.warning(
                    "The DAG folder %s cannot be watched; it is looked at now and then: %s", self._folder, error
                )
            self._has_complained = True

    def _heard(self) -> None:
        # The loop may be closing while the watching thread has news for it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._changed)

    def _changed(self) -> None:
        self._is_settling = True
        self._look_by(0)

    def _imports_done(self) -> None:
        self._busy_at = self._loop.time()
        self._look_by(0)

    def _look_by(self, seconds: float) -> None:
        self._look_at = min(self._look_at, self._loop.time() + seconds)
        self._woken.set()

    def _report_failures(self) -> None:
        failures, self._work.failures = self._work.failures, []
        for failure in failures:
            log.error("A DAG file could not be brought up to date and is tried again: %s", failure)
        if failures:
            self._rest_after_trouble()

    def _rest_after_trouble(self) -> None:
        self._troubles += 1
        pause = min(_PAUSE_AFTER_ERROR * self._troubles, _LONGEST_PAUSE)
        self._look_at = self._rest_until = self._loop.time() + pause

    async def _save_memory(self) -> None:
        if self._work.is_idle and self._loop.time() - self._busy_at > _IDLE_SECONDS:
            await self._imports.close()
