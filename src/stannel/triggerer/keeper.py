"""The triggers held here, and what becomes of each: begun, heard, stopped, let go. A report is acted on as it comes."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from stannel.model.trigger import CancelReason, Event, Failure, FailureReason, Firing
from stannel.protocol.triggering import Ask, Failed, Finished, Fired, Logged, Report, StreamEnded
from stannel.triggerer.ends import End, Ends
from stannel.triggerer.held import Held, Phase, Stream
from stannel.triggerer.host_process import HostPlan, HostProcess
from stannel.triggerer.hosts import HostLimits, Hosts, HostsOwner
from stannel.triggerer.logs import TriggerLogs
from stannel.triggerer.services import Services
from stannel.triggerer.watchers import WatcherLimits, Watchers, WatchersOwner

log = logging.getLogger(__name__)

# More events than this wait for the store: hosts are not listened to until there are fewer.
_MOST_PENDING, _FEW_PENDING = 20_000, 5_000
_MOST_QUESTIONS = 256
# A trigger that is moved starts again: many are over sooner than it would pay.
_SETTLED_SECONDS = 5.0


class Desk(msgspec.Struct, frozen=True, kw_only=True):
    """What a keeper works with."""

    plan: HostPlan
    limits: HostLimits
    ends: Ends
    logs: TriggerLogs
    services: Services
    clock: Callable[[], datetime]
    watching: WatcherLimits = WatcherLimits()


class Keeper:
    """Everything held under one owner's name. `on_news`: there is something to tell the store."""

    def __init__(self, desk: Desk, owner: str, on_news: Callable[[], None]) -> None:
        self._desk, self._owner, self._on_news = desk, owner, on_news
        self.hosts = Hosts(
            desk.plan,
            desk.limits,
            HostsOwner(report=self._heard, orphans=self._orphaned, fail=self._fail, note=self._note),
        )
        self.watchers = Watchers(self.hosts, desk.ends, owner, desk.watching, desk.clock)
        self.watchers.owner = WatchersOwner(release=self._release, note=self._note)
        self._held: dict[int, Held] = {}
        self._is_leaving = False
        # Something was refused: what is held should be compared with what the store believes.
        self.is_unsure = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.to_forget: list[int] = []
        self.to_release: list[int] = []
        # Their end was refused: who ended them, and whether their `on_kill` is owed, the orders tell.
        self.refused: list[Held] = []

    @property
    def count(self) -> int:
        return len(self._held)

    @property
    def is_swamped(self) -> bool:
        """More was fired than could be stored so far."""
        return self._desk.ends.pending > _MOST_PENDING

    # --- what the store says ---------------------------------------------------------------------------------------

    def begin(self, claimed: Iterable[Held]) -> None:
        """Have these run."""
        fresh, watching = [], []
        for one in claimed:
            before = self.hosts.find(one.id)
            resting = self._held.get(one.id)
            if before is None and resting is not None:
                self._drop(resting)
            if before is None:
                fresh.append(one)
            elif before.phase is Phase.RUNNING and one.phase is Phase.RUNNING:
                # It was taken from us and came back: it never stopped.
                before.epoch = one.epoch
                one = before
            else:
                before.successor = one
                self._give_up([before], CancelReason.MOVED)
            self._held[one.id] = one
            if one.course is not None and one is not before:
                watching.append(one)
        self.watchers.adopt(watching)
        self._start(fresh)

    def _start(self, held: Iterable[Held]) -> None:
        tasks = []
        for one in held:
            if one.course is None:
                tasks.append(one)
            else:
                self.watchers.start(one)
        self.hosts.start(tasks)

    def obey(self, orders: Iterable[tuple[int, CancelReason]], refused: Iterable[Held]) -> None:
        """Stop what others ended. Of those whose end was refused and nobody ordered anything, others have hold."""
        for trigger_id, reason in orders:
            held = self._held.get(trigger_id)
            if held is None:
                self.to_forget += [trigger_id] if reason in (CancelReason.KILLED, CancelReason.UNWANTED) else []
            elif reason is CancelReason.KILLED:
                self._kill(held)
            elif reason is CancelReason.UNWANTED:
                self._stop_watcher(held)
            elif reason is CancelReason.RESTARTED:
                self.watchers.restart(held)
            else:
                self._give_up([held], reason)
        self._give_up([one for one in refused if one.phase is Phase.ENDING], CancelReason.MOVED)

    def compare(self, known: Mapping[int, int]) -> None:
        """Stop what others have by now, and give back what only the store believes to be here."""
        running = (one for one in self._held.values() if one.phase is Phase.RUNNING)
        self._give_up([one for one in running if known.get(one.id) != one.epoch], CancelReason.MOVED)
        self.to_release += [trigger_id for trigger_id in known if trigger_id not in self._held]

    def stored(self, results: Sequence[tuple[End, bool | None]]) -> int:
        """Ends were stored, or refused; how many triggers are held no longer."""
        fired = []
        self.watchers.confirm(results)
        for end, ok in results:
            held = self._held.get(end.firing.id)
            if end.firing.is_watch:
                self.is_unsure = self.is_unsure or (held is not None and not ok)
                continue
            if held is None or held.epoch != end.firing.epoch or held.phase is not Phase.ENDING:
                continue
            if ok is False:
                self.refused.append(held)
                continue
            fired.append(held)
            if ok is None:
                self.to_release.append(held.id)
        self._give_up(fired, CancelReason.FIRED)
        if self._desk.ends.pending < _FEW_PENDING:
            self.hosts.resume()
        if self.refused or self.to_release or self.is_unsure:
            self._on_news()
        return len(fired)

    def hand_over(self, count: int) -> None:
        """Stop up to so many, to be given to others; none that has only just come, or it might never get anywhere."""
        settled = time.monotonic() - _SETTLED_SECONDS
        movable = [one for one in self._held.values() if one.phase is Phase.RUNNING and not one.alone]
        movable = [one for one in movable if one.since < settled]
        leaving = [one for one in movable if one.stream is None][:count]
        streams = self._movable_streams(movable, count - len(leaving))
        if leaving or streams:
            moved = len(leaving) + sum(len(one.members) for one in streams)
            log.info("%d triggers are given to others, who have less to do", moved)
        for one in leaving:
            one.phase = Phase.LEAVING
        self.hosts.cancel(leaving, CancelReason.MOVED)
        self._release_resting(leaving)
        for stream in streams:
            self.watchers.give_away(stream)

    def _movable_streams(self, movable: Sequence[Held], count: int) -> list[Stream]:
        """Whole streams, of no more watchers than `count` together."""
        chosen = []
        settled = {one.id for one in movable}
        for stream in {id(one.stream): one.stream for one in movable if one.stream is not None}.values():
            if len(stream.members) <= count and stream.members.keys() <= settled and stream.closing is None:
                chosen.append(stream)
                count -= len(stream.members)
        return chosen

    def _release_resting(self, leaving: Sequence[Held]) -> None:
        """Watchers that rest have no process that could let go of them."""
        self._release([one for one in leaving if one.course is not None and one.host is None])

    def hand_over_waiting(self) -> None:
        """No host can be had here; others may be luckier."""
        waiting = [one for one in self.hosts.take_waiting() if one.phase is Phase.RUNNING]
        for stream in {id(one.stream): one.stream for one in waiting if one.stream is not None}.values():
            self.watchers.give_away(stream)
        self._release([one for one in waiting if one.phase is Phase.RUNNING])

    def restart_changed(self) -> None:
        """Watchers whose code has changed begin anew with the new code; nothing else that runs is touched."""
        for host, file in self.hosts.changed():
            watching = [one for one in host.running.values() if one.course is not None and one.phase is Phase.RUNNING]
            if watching:
                log.info("%d watchers begin anew, for %s has changed", len(watching), file)
                self.watchers.move(watching)

    async def close(self, *, is_lost: bool) -> None:
        """Let go of everything: hosts stop what they run, say their last words, and end."""
        self._is_leaving = True
        self.watchers.stop()
        if is_lost:
            self.hosts.cancel(self._held.values(), CancelReason.MOVED)
        await self.hosts.close()
        self._desk.logs.flush()

    # --- what hosts say --------------------------------------------------------------------------------------------

    def _heard(self, host: HostProcess, report: Report) -> None:
        match report:
            case Fired(trigger_id, epoch):
                self._fired(host, _own(host, trigger_id, epoch), report)
            case Failed(trigger_id, epoch, error, traceback):
                failure = Failure(error=error or FailureReason.FAILURE, traceback=traceback)
                self._ended(_own(host, trigger_id, epoch), failure)
            case StreamEnded(stream_key):
                self.watchers.stream_ended(host, stream_key)
            case Finished(trigger_id, epoch):
                held = _own(host, trigger_id, epoch)
                if held is not None:
                    host.gone(trigger_id)
                    self._let_go(held, was_draining=host.is_draining)
            case Logged(records):
                self._desk.logs.take(records, host.running, host.mask)
            case Ask():
                self._answer_soon(host, report)
            case _:
                log.warning("A host said %s, which is nothing to be acted on", type(report).__name__)

    def _fired(self, host: HostProcess, held: Held | None, report: Fired) -> None:
        if held is not None and held.course is not None:
            self.watchers.fired(host, held, report)
        else:
            self._ended(held, report.event, None if report.number is None else (host, report.number))
        if self.is_swamped:
            self.hosts.pause()

    def _ended(self, held: Held | None, what: Event | Failure, source: tuple[HostProcess, int] | None = None) -> None:
        """The first thing a trigger says counts; one that is being killed has nothing more to say."""
        if held is None:
            return
        if held.course is not None:
            assert isinstance(what, Failure)
            self.watchers.failed(held, what)
        elif held.phase in (Phase.RUNNING, Phase.LEAVING):
            held.phase = Phase.ENDING
            self._desk.ends.add(self._owner, Firing(id=held.id, epoch=held.epoch, what=what), source)

    def _fail(self, held: Held, text: str) -> None:
        log.error("Trigger %s fails: %s", held.id, text)
        self._note(held, f"The trigger fails: {text}", "error")
        self._ended(held, Failure(error=text))

    def _let_go(self, held: Held, *, was_draining: bool) -> None:
        """Its process is done with it."""
        held.host = None
        match held.phase:
            case Phase.RUNNING if self._is_leaving:
                pass
            case Phase.RUNNING if held.course is not None:
                self.watchers.ended(held)
            case Phase.RUNNING if was_draining:
                self.hosts.start([held])
            case Phase.RUNNING:
                self._fail(held, "it ended without a word")
            case Phase.LEAVING:
                if self.watchers.let_go(held):
                    self._release([held])
            case Phase.KILLING | Phase.STOPPING:
                self._drop(held)
                self.to_forget.append(held.id)
                self._on_news()
            case Phase.ENDING | Phase.OVER:
                pass
        self._start_successor(held)

    def _orphaned(self, orphans: list[tuple[Held, bool]]) -> None:
        """Their host is gone. What still waits goes on elsewhere; an `on_kill` that did not end is called again."""
        again = []
        for held, had_its_time in orphans:
            is_unfinished = held.phase is Phase.RUNNING or (held.phase is Phase.KILLING and not had_its_time)
            if is_unfinished and not self._is_leaving and held.course is not None:
                self.watchers.ended(held)
            elif is_unfinished and not self._is_leaving:
                again.append(held)
            else:
                self._let_go(held, was_draining=True)
        self.hosts.start(again)

    # --- ending one ------------------------------------------------------------------------------------------------

    def _kill(self, held: Held) -> None:
        """Have its `on_kill` run: now, or after the stop that is under way, or alone if it does not run at all."""
        was, held.phase = held.phase, Phase.KILLING
        if held.host is None:
            if was is Phase.ENDING:
                # It had come to its end by itself.
                self._drop(held)
                self.to_forget.append(held.id)
        elif held.cancelled is None:
            self.hosts.cancel([held], CancelReason.KILLED)
        elif held.cancelled is not CancelReason.KILLED:
            held.successor = self._held[held.id] = held.again()
            held.phase = Phase.OVER

    def _stop_watcher(self, held: Held) -> None:
        """Nobody wants it any more. What it says until it has stopped still counts."""
        if held.phase in (Phase.STOPPING, Phase.OVER):
            return
        if held.host is None:
            self._drop(held)
            self.to_forget.append(held.id)
            self._on_news()
        else:
            held.phase = Phase.STOPPING
            self.hosts.cancel([held], CancelReason.UNWANTED)

    def _release(self, held: Sequence[Held]) -> None:
        """These are stopped, and to be given back, all at once."""
        for one in held:
            self._drop(one)
        self.to_release += [one.id for one in held]
        if held:
            self._on_news()

    def _give_up(self, held: Sequence[Held], reason: CancelReason) -> None:
        """These are no longer ours, and are stopped where they still run."""
        for one in held:
            self._drop(one)
        self.hosts.cancel(held, reason)

    def _drop(self, held: Held) -> None:
        held.phase = Phase.OVER
        if self._held.get(held.id) is held:
            del self._held[held.id]
        if held.course is not None:
            self.watchers.dropped(held)

    def _start_successor(self, held: Held) -> None:
        successor, held.successor = held.successor, None
        if successor is not None and not self._is_leaving:
            self._start([successor])

    def _note(self, held: Held, text: str, level: str = "warning") -> None:
        self._desk.logs.note(held.trigger, text, level)

    # --- questions -------------------------------------------------------------------------------------------------

    def _answer_soon(self, host: HostProcess, ask: Ask) -> None:
        host.asking += 1
        if host.asking > _MOST_QUESTIONS:
            host.pause()
        task = asyncio.create_task(self._answer(host, ask))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, host: HostProcess, ask: Ask) -> None:
        services, now = self._desk.services, self._desk.clock()
        loop = asyncio.get_running_loop()
        try:
            host.send(await loop.run_in_executor(services.threads, services.answer, ask, host.mask, now))
        finally:
            host.asking -= 1
            if host.asking <= _MOST_QUESTIONS // 2 and not self.hosts.is_paused:
                host.resume()


def _own(host: HostProcess, trigger_id: int, epoch: int) -> Held | None:
    """The trigger a report is about. None: it is about an earlier life of it."""
    held = host.running.get(trigger_id)
    return held if held is not None and held.told_epoch == epoch else None
