"""The triggerer: holds a lease, runs triggers in hosts beside it, and stores what they fire as it comes.

It never runs authors' code itself. When its lease is lost it lets go of everything and starts anew under another name.
"""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import uvloop

from stannel.errors import StannelError
from stannel.model.ids import new_id
from stannel.model.trigger import Firing
from stannel.protocol.triggering import HostSetup, StreamLimits
from stannel.settings import Settings
from stannel.store import Store
from stannel.store.database import TRIGGERER
from stannel.store.signals import Listener
from stannel.supervisor.environment import for_authors
from stannel.triggerer.ends import End, Ends
from stannel.triggerer.health import Patience
from stannel.triggerer.host_process import HostPlan
from stannel.triggerer.hosts import HostLimits
from stannel.triggerer.keeper import Desk
from stannel.triggerer.lease import Beat, Lease
from stannel.triggerer.logs import TriggerLogs
from stannel.triggerer.moments import Moments
from stannel.triggerer.services import Services
from stannel.triggerer.tenure import Office, Tenure
from stannel.triggerer.threads import Threads
from stannel.triggerer.watchers import WatcherLimits

log = logging.getLogger(__name__)

_PAUSE_AFTER_ERROR = 0.5
# A store that is away when we stop has this long to come back for the last events.
_LAST_EVENTS_SECONDS = 10.0
_LAST_WORDS_SECONDS = 5.0


def utcnow() -> datetime:
    return datetime.now(UTC)


class Triggerer:
    """One triggerer. Several share the triggers of one database."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        capacity: int | None = None,
        queues: Sequence[str] | None = None,
        clock: Callable[[], datetime] = utcnow,
    ) -> None:
        self._store, self._settings, self._clock = store, settings, clock
        self._capacity = capacity or settings.triggerer.capacity
        self._queues = tuple(queues) if queues else None
        self.owner = ""
        self._stops = 0
        self._stop_event: threading.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tenure: Tenure | None = None
        self._moments: Moments | None = None
        self._judges_from = float("-inf")

    @property
    def running(self) -> int:
        """How many triggers are held."""
        return self._tenure.running if self._tenure is not None else 0

    @property
    def host_pids(self) -> list[int]:
        """The processes that run triggers."""
        return self._tenure.pids if self._tenure is not None else []

    def run(self, stop: threading.Event | None = None) -> None:
        """Work until stopped. An error is logged and the work goes on; the store decides what is left to do."""
        self._stop_event = stop
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._main())

    def stop(self) -> None:
        """Have `run` return soon: what runs is stopped, what it fired is stored. Called again: now."""
        self._stops += 1
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._tenure is not None:
            self._tenure.end()
            if self._stops > 1:
                self._tenure.kill()

    def _is_stopping(self) -> bool:
        return self._stops > 0 or (self._stop_event is not None and self._stop_event.is_set())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        office = self._office()
        try:
            while not self._is_stopping():
                try:
                    await self._serve(office)
                except StannelError as error:
                    log.error("The triggerer cannot begin its work and tries again: %s", error)
                    await asyncio.sleep(_PAUSE_AFTER_ERROR)
                except Exception:
                    log.exception("The triggerer met a bug in itself and begins anew")
                    await asyncio.sleep(_PAUSE_AFTER_ERROR)
        finally:
            self._loop = None
            office.desk.ends.close()
            office.desk.services.close()
            office.desk.logs.flush()
            office.threads.close()

    async def _serve(self, office: Office) -> None:
        """One tenure, from taking a lease to the end of it."""
        tenure = Tenure(office, f"triggerer-{new_id()[-12:]}")
        lost = asyncio.Event()
        lease = self._lease(tenure, lost)
        await office.threads.call(lease.take)
        listener = await office.threads.call(self._store.listen, TRIGGERER)
        moments = self._moments_of(office)
        self.owner, self._tenure, self._moments = tenure.owner, tenure, moments
        timing = asyncio.create_task(moments.run())
        loop = asyncio.get_running_loop()
        loop.add_reader(listener.fileno(), self._heard, listener)
        lease.start()
        tenure.wake()
        if self._is_stopping():
            tenure.end()
        try:
            await tenure.run()
        finally:
            timing.cancel()
            loop.remove_reader(listener.fileno())
            listener.close()
            await self._leave(office, tenure, lease, lost=lost.is_set())

    async def _leave(self, office: Office, tenure: Tenure, lease: Lease, *, lost: bool) -> None:
        await tenure.leave(is_lost=lost)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0 if lost else _LAST_EVENTS_SECONDS):
                await office.desk.ends.drained()
        await office.threads.call(lease.stop)
        self._tenure = None
        try:
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await tenure.give_back()
        except (StannelError, TimeoutError) as error:
            log.warning("The triggerer's lease could not be released and will run out: %s", error)

    def _heard(self, listener: Listener) -> None:
        if not listener.drain():
            return
        if self._tenure is not None:
            self._tenure.wake()
        if self._moments is not None:
            self._moments.wake()

    # --- the lease's thread calls these ----------------------------------------------------------------------------

    def _lease(self, tenure: Tenure, lost: asyncio.Event) -> Lease:
        loop, settings = asyncio.get_running_loop(), self._settings

        def later(function: Callable[..., object], *args: object) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(function, *args)

        def lose(why: str) -> None:
            log.error("The triggerer lost its lease and lets go of its triggers, for others take them over: %s", why)
            lost.set()
            tenure.end()

        lease = Lease(
            self._store,
            tenure.owner,
            heartbeat=settings.triggerer.job_heartbeat_sec,
            patience=settings.triggerer.runner_health_check_threshold,
            hostname=settings.core.hostname or os.uname().nodename,
            clock=self._clock,
            detail=tenure.detail,
            ping=lambda: later(lease.pong),
            on_beat=lambda beat: later(self._beat, tenure, lease, beat),
            on_lost=lambda why: later(lose, why),
        )
        return lease

    def _beat(self, tenure: Tenure, lease: Lease, beat: Beat) -> None:
        if self._is_stopping():
            tenure.end()
        now = time.monotonic()
        if beat.was_stalled:
            # The whole machine may have slept: silence of others means nothing until they had time to speak.
            self._judges_from = now + lease.seconds
        tenure.beat(beat.at, was_stalled=beat.was_stalled, may_take_over=now >= self._judges_from)

    # --- what it works with ----------------------------------------------------------------------------------------

    def _office(self) -> Office:
        store, settings = self._store, self._settings
        threads = Threads()
        logs = TriggerLogs(settings.logging.base_log_folder, threads.begin)

        def settle_now(owner: str, firings: Sequence[Firing]) -> list[bool]:
            # Whoever sees the task go on finds in its log what its trigger said before.
            logs.flush_those_of([one.id for one in firings])
            return store.triggers.settle(owner, firings, now=self._clock())

        async def settle(owner: str, firings: Sequence[Firing]) -> list[bool]:
            return await threads.call(settle_now, owner, firings)

        return Office(
            store=store,
            capacity=self._capacity,
            queues=self._queues,
            clock=self._clock,
            threads=threads,
            desk=Desk(
                plan=self._plan(),
                limits=self._limits(),
                ends=Ends(settle, self._stored),
                logs=logs,
                services=Services(
                    store,
                    hostname=settings.core.hostname or os.uname().nodename,
                    xcom_limit=settings.core.xcom_max_size,
                ),
                clock=self._clock,
                watching=WatcherLimits(
                    longest=settings.triggerer.watcher_backoff_max, repeats=settings.triggerer.watcher_repeats
                ),
            ),
        )

    def _stored(self, results: Sequence[tuple[End, bool | None]]) -> None:
        tenure = self._tenure
        if tenure is not None:
            tenure.stored([(end, ok) for end, ok in results if end.owner == tenure.owner])

    def _moments_of(self, office: Office) -> Moments:
        triggers, threads = self._store.triggers, office.threads

        async def next_due() -> datetime | None:
            return await threads.call(triggers.next_due)

        async def fire_due(now: datetime, most: int) -> int:
            return await threads.call(triggers.fire_due, now, most=most)

        return Moments(next_due, fire_due, self._clock)

    def _plan(self) -> HostPlan:
        settings = self._settings
        own = settings.triggerer
        return HostPlan(
            setup=HostSetup(
                dags_folder=str(settings.core.dags_folder),
                blocked_warning=own.blocked_main_thread_warning_threshold,
                on_kill_timeout=own.on_kill_timeout,
                cancel_grace=own.cancel_grace,
                log_level=settings.logging.logging_level,
                streams=StreamLimits(
                    queue_size=own.shared_stream_subscriber_queue_size,
                    ack_timeout=own.shared_stream_ack_timeout,
                    grace_period=own.shared_stream_cohort_grace_period,
                    overflow=own.shared_stream_overflow,
                ),
            ),
            environ=for_authors(os.environ, settings),
            log_file=settings.logging.base_log_folder / "stannel.log",
            frame_limit=settings.workers.frame_limit,
            sensitive_names=tuple(settings.core.sensitive_var_conn_names),
        )

    def _limits(self) -> HostLimits:
        settings = self._settings
        own = settings.triggerer
        return HostLimits(
            patience=Patience(
                blocked=own.blocked_quarantine_threshold,
                importing=settings.core.dagbag_import_timeout,
                silent=own.runner_health_check_threshold,
            ),
            memory=own.host_memory_limit_mb * 2**20,
            idle=own.host_idle_seconds,
            cancel_grace=own.cancel_grace,
            on_kill_timeout=own.on_kill_timeout,
            quarantine=own.quarantine_hosts,
        )
