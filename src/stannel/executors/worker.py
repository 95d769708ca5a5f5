"""The worker: a process that claims queued attempts, runs each under a supervisor, and reports how they ended.

It lives on a lease. A worker that cannot renew it for long stops its attempts and ends: others may have them by then.
"""

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import time
from datetime import UTC, datetime

import msgspec
import uvloop

from stannel.errors import StannelError
from stannel.execution.greeting import greeting
from stannel.executors.desk import StoreDesk
from stannel.executors.logfile import log_to
from stannel.model.run import Attempt
from stannel.protocol.replies import StartupDetails
from stannel.settings import Settings, load_settings, stannel_home
from stannel.store import Store
from stannel.store.database import WORKER
from stannel.store.opening import open_store
from stannel.store.signals import Listener
from stannel.supervisor.attempt import Supervision
from stannel.supervisor.desk import Desk, Limits
from stannel.supervisor.environment import for_authors
from stannel.supervisor.files import ForkLaunch, ForkSettings
from stannel.supervisor.tasklog import TaskLog, log_path

log = logging.getLogger(__name__)

# So many times the lease's length without an answer, and the attempts are stopped. A database that is restarted is
# back before; a worker that alone is cut off runs beside whoever took its attempts over for no longer than this.
_CUT_OFF = 10
_CALLBACKS_PER_BEAT = 2
LEASE_LOST = 75
_PAUSE_AFTER_ERROR = 1.0
_YOUNG_OBJECTS = 10_000
_STOPPED = "the worker was stopped"
_SETUP = "stannel.compat.airflow:install_if_absent"


class _Running(msgspec.Struct, frozen=True):
    """An attempt, or a callback, under supervision."""

    supervision: Supervision
    task: asyncio.Task[None]
    is_callback: bool


class Worker:
    """Runs up to `slots` attempts at a time."""

    def __init__(self, store: Store, settings: Settings, *, owner: str) -> None:
        self._store, self._settings, self.owner = store, settings, owner
        self._slots = settings.core.parallelism
        self._lease_seconds = settings.scheduler.lease_seconds
        self._hostname = settings.core.hostname or os.uname().nodename
        self._desk = StoreDesk(store, xcom_limit=settings.core.xcom_max_size)
        self._launch = ForkLaunch(
            ForkSettings(
                dags_folder=settings.core.dags_folder,
                capacity=settings.workers.fork_servers,
                import_timeout=settings.core.dagbag_import_timeout,
                setup=_SETUP,
                environ=for_authors(os.environ, settings),
            )
        )
        self._limits = Limits(
            term_grace=settings.core.killed_task_cleanup_time,
            overtime=settings.core.task_success_overtime,
            frame_limit=settings.workers.frame_limit,
        )
        self._running: dict[str, _Running] = {}
        self._wake = asyncio.Event()
        self._draining = False
        self._stopping = False
        self._lease_lost = False
        self._renewed = float("-inf")
        self._done = 0
        self._strangers: set[str] = set()
        self._noted: set[str] = set()

    async def run(self) -> int:
        """Work until told to stop; the exit status of the process."""
        moment = time.monotonic()
        await self._desk.in_thread(
            self._store.leases.take,
            self.owner,
            "worker",
            hostname=self._hostname,
            pid=os.getpid(),
            now=_now(),
            seconds=self._lease_seconds,
        )
        self._renewed = moment
        self._launch.warm_up()
        loop = asyncio.get_running_loop()
        listener = self._store.listen(WORKER)
        loop.add_reader(listener.fileno(), self._heard, listener)
        beating = asyncio.create_task(self._beat())
        self._wake.set()
        try:
            while not self._is_over():
                await self._wake.wait()
                self._wake.clear()
                await self._claim()
        finally:
            beating.cancel()
            loop.remove_reader(listener.fileno())
            listener.close()
            await self._leave()
        return LEASE_LOST if self._lease_lost else 0

    def drain(self) -> None:
        """Claim nothing more, and end once the running attempts have ended."""
        self._draining = True
        self._wake.set()

    def stop(self) -> None:
        """End soon: the running attempts are stopped, and tried again if their author allows it."""
        self._stopping = True
        self.drain()
        for one in list(self._running.values()):
            one.supervision.cancel(_STOPPED)

    def _is_over(self) -> bool:
        return self._draining and not self._running

    def _heard(self, listener: Listener) -> None:
        if listener.drain():
            self._wake.set()

    async def _claim(self) -> None:
        while not self._draining and (free := self._slots - len(self._running)) > 0:
            try:
                # Attempts run before more is asked of the store: trouble with callbacks is no trouble of theirs.
                taken = await self._claim_attempts(free)
                if taken < free and not self._draining:
                    taken += await self._claim_callbacks(free - taken)
            except StannelError as error:
                log.error("The worker cannot claim work and tries again: %s", error)
            except Exception:
                log.exception("The worker met a bug while it claimed work and tries again")
            else:
                if taken < free:
                    return
                continue
            asyncio.get_running_loop().call_later(_PAUSE_AFTER_ERROR, self._wake.set)
            return

    async def _claim_attempts(self, free: int) -> int:
        attempts = await self._desk.in_thread(
            self._store.attempts.claim, self.owner, most=free, hostname=self._hostname, now=_now()
        )
        for attempt in attempts:
            self._start(attempt, greeting(attempt, hostname=self._hostname), self._desk)
        return len(attempts)

    async def _claim_callbacks(self, free: int) -> int:
        callbacks = await self._desk.in_thread(self._store.callbacks.claim, self.owner, most=free, now=_now())
        for work in callbacks:
            about = {"kind": work.kind, "scope": work.scope, "reason": work.reason}
            startup = greeting(work.attempt, hostname=self._hostname, callback=about)
            self._start(work.attempt, startup, self._desk.for_callback(work.pk), f"the {work.kind} callback")
        return len(callbacks)

    def _start(self, attempt: Attempt, startup: StartupDetails, desk: Desk, what: str = "") -> None:
        settings = self._settings
        placed = msgspec.structs.replace(attempt, fileloc=str(settings.core.dags_folder / attempt.fileloc))
        path = log_path(settings.logging.base_log_folder, attempt)
        task_log = TaskLog(path, settings.core.sensitive_var_conn_names)
        if what:
            task_log.note(f"What follows is {what} of {attempt.dag_id}, not another try of the task")
        supervision = Supervision(placed, startup, self._launch, desk, task_log, self._limits)
        task = asyncio.create_task(self._supervise(attempt, supervision))
        self._running[attempt.attempt_id] = _Running(supervision, task, is_callback=desk is not self._desk)
        if self._stopping:
            # It was claimed while the worker was being stopped.
            supervision.cancel(_STOPPED)

    async def _supervise(self, attempt: Attempt, supervision: Supervision) -> None:
        try:
            await supervision.run()
        except Exception:
            # Its attempt is given back at one of the next heartbeats.
            log.exception("The supervisor of %s met a bug in itself", attempt.label)
        finally:
            was_full = len(self._running) >= self._slots
            del self._running[attempt.attempt_id]
            self._done += 1
            if was_full or self._draining:
                self._wake.set()

    async def _beat(self) -> None:
        """Renew the lease, and stop what was taken away from this worker; everything, if the store stays away."""
        beat, patience = self._settings.scheduler.scheduler_heartbeat_sec, _CUT_OFF * self._lease_seconds
        renewal: asyncio.Task[None] | None = None
        while not self._lease_lost:
            await asyncio.sleep(beat)
            # A store that does not answer holds up one renewal, not one at every beat.
            renewal = renewal or asyncio.create_task(self._renew())
            await asyncio.wait({renewal}, timeout=beat)
            if renewal.done():
                self._note_trouble(renewal.exception())
                renewal = None
            if time.monotonic() - self._renewed >= patience:
                self._lose_lease(f"it was not renewed for {patience:g} s")

    def _note_trouble(self, error: BaseException | None) -> None:
        if isinstance(error, StannelError):
            log.error("The worker cannot renew its lease and tries again: %s", error)
        elif error is not None:
            log.error("The worker met a bug at its heartbeat and tries again", exc_info=error)

    def _lose_lease(self, why: str) -> None:
        if not self._lease_lost:
            log.error("The worker lost its lease and stops its attempts, for others take them over: %s", why)
        self._lease_lost = True
        self.stop()

    async def _renew(self) -> None:
        detail = {"running": len(self._running), "done": self._done, "slots": self._slots}
        before = {attempt_id for attempt_id, one in self._running.items() if not one.is_callback}
        moment = time.monotonic()
        if not await self._desk.in_thread(
            self._store.leases.renew, self.owner, now=_now(), seconds=self._lease_seconds, detail=detail
        ):
            self._lose_lease("it was ended by someone else")
            return
        self._renewed = moment
        mine = await self._desk.in_thread(self._store.attempts.still_mine, self.owner)
        for attempt_id in before - mine:
            if attempt_id in self._running:
                self._running[attempt_id].supervision.cancel("it was taken away from this worker")
        await self._disown(mine - self._running.keys())
        await self._note_pids()
        if not self._draining:
            # Beside the slots: a worker whose slots are never free would otherwise never call back.
            await self._claim_callbacks(_CALLBACKS_PER_BEAT)

    async def _note_pids(self) -> None:
        """Let people find the processes of attempts that run long enough to be looked for."""
        pids = {
            attempt_id: pid
            for attempt_id, one in self._running.items()
            if not one.is_callback and attempt_id not in self._noted and (pid := one.supervision.pid) is not None
        }
        if pids:
            await self._desk.in_thread(self._store.attempts.note_pids, pids)
        self._noted = self._noted & self._running.keys() | pids.keys()

    async def _disown(self, strangers: set[str]) -> None:
        """Give back what the store takes for ours and nobody supervises; one just claimed or ended is met only once."""
        lost, self._strangers = strangers & self._strangers, strangers
        if lost:
            log.error("Nobody runs the attempts %s any more; giving them back", ", ".join(sorted(lost)))
            await self._desk.in_thread(self._store.attempts.disown, sorted(lost))

    async def _leave(self) -> None:
        await self._launch.close()
        with contextlib.suppress(StannelError, TimeoutError):
            async with asyncio.timeout(self._lease_seconds):
                await self._desk.in_thread(self._store.leases.release, self.owner)
        self._desk.close()


def _now() -> datetime:
    return datetime.now(UTC)


async def _run(settings: Settings, owner: str) -> int:
    store = open_store(settings)
    worker = Worker(store, settings, owner=owner)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.drain)
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_signal_handler(signal.SIGQUIT, worker.stop)
    # The parent holds the other end of this pipe; when it dies, what runs is brought to its end and nothing is begun.
    loop.add_reader(0, _orphaned, loop, worker)
    try:
        return await worker.run()
    finally:
        store.close()


def _orphaned(loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
    loop.remove_reader(0)
    worker.drain()


def main() -> None:
    """Run a worker process for the home named in the environment."""
    parser = argparse.ArgumentParser(description="Runs tasks; started by the local executor.")
    parser.add_argument("--owner", required=True)
    owner = parser.parse_args().owner
    settings = load_settings(stannel_home(os.environ), os.environ)
    log_to(settings)
    # What was imported stays; looking for garbage in it again and again finds none.
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(_run(settings, owner)))


if __name__ == "__main__":
    main()
