"""The programs of one machine, started and stopped together: scheduler, executor; parser and triggerer where wanted."""

import logging
import threading
from collections.abc import Callable

from stannel.cli.workers import started_executor
from stannel.errors import StannelError
from stannel.executors.base import Executor
from stannel.model.trigger import EVERY_QUEUE
from stannel.parser.loop import Parser
from stannel.scheduler.loop import Scheduler
from stannel.settings import Settings
from stannel.store.store import Store
from stannel.triggerer.loop import Triggerer

log = logging.getLogger(__name__)


class Engine:
    """Everything that has to run for DAGs to run. What `parse` and `trigger` refuse is done elsewhere."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        executor: Executor | None = None,
        parse: bool = True,
        trigger: bool = True,
    ) -> None:
        self._store, self._settings = store, settings
        self._stop = threading.Event()
        self.scheduler = Scheduler(store, settings)
        self.executor = executor or started_executor(settings)
        self.parser = Parser(store, settings) if parse else None
        # Whoever starts everything in one place expects every trigger to run there, whatever its queue.
        self.triggerer = Triggerer(store, settings, queues=[EVERY_QUEUE]) if trigger else None
        self._threads = [self._thread("scheduler", self.scheduler.run)]
        if self.parser is not None:
            self._threads.append(self._thread("parser", self.parser.run))
        if self.triggerer is not None:
            self._threads.append(self._thread("triggerer", self.triggerer.run))

    def start(self) -> None:
        """Start everything; returns before it is ready."""
        self.executor.watch(self._store)
        for thread in self._threads:
            thread.start()

    def stop(self, *, patience: float) -> None:
        """Start nothing new, give running tasks `patience` seconds to end, then stop them."""
        self._stop.set()
        # A store that is away cannot pass the word on; the scheduler then notices by itself.
        try:
            self.scheduler.stop()
        except (StannelError, OSError) as error:
            log.warning("The scheduler could not be woken and stops at its next look: %s", error)
        if self.parser is not None:
            self.parser.stop()
        self._stop_triggerer()
        self.executor.stop(patience=patience)
        for thread in self._threads:
            thread.join()

    def stop_now(self) -> None:
        """Stop running tasks as well, without waiting for them."""
        self._stop_triggerer()
        self.executor.stop_now()

    @property
    def dead(self) -> list[str]:
        """The names of programs that ended although nobody stopped them."""
        return [] if self._stop.is_set() else [thread.name for thread in self._threads if not thread.is_alive()]

    def _stop_triggerer(self) -> None:
        if self.triggerer is not None:
            self.triggerer.stop()

    def _thread(self, name: str, run: Callable[[threading.Event], None]) -> threading.Thread:
        def target() -> None:
            try:
                run(self._stop)
            except Exception:
                log.exception("The %s ended because of a bug in it", name)

        return threading.Thread(target=target, name=name, daemon=True)
