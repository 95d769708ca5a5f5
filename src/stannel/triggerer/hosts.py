"""The hosts of one triggerer: one takes new triggers, others keep what they have, or one trigger that must be alone.

A host is replaced, never repaired: when code has changed, when it makes no progress, when it grows too large. Whatever
it ran goes on in another, except that a trigger which held up or ended its host gets a process of its own. Who made a
host grow cannot be seen from outside: its triggers are divided among two others, and so on, until one is found alone.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from stannel.model.trigger import CancelReason
from stannel.protocol.triggering import Alive, Blocking, Command, Loaded, Registered, Report, Streams, Stuck
from stannel.triggerer.health import Blocked, Patience, Signs, Verdict, is_importing, judge
from stannel.triggerer.held import Held, Part, Phase, Stream
from stannel.triggerer.host_process import HostPlan, HostProcess

log = logging.getLogger(__name__)

_CHECK_SECONDS = 0.25
# Looking whether code has changed may take a twentieth of the time when triggers come one after the other.
_LOOK_SHARE = 20
# A check that comes later than this says that we ourselves stood still, and heard nobody.
_OWN_STALL = 4 * _CHECK_SECONDS
_MOST_DEATHS = 3
_YOUNG_SECONDS, _FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 0.1, 10.0
_STUCK_SLACK = 5.0
# Streams wait for their last confirmations, and are closed.
_LAST_WORDS_SECONDS = 4.0


class HostLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long, how large and how many."""

    patience: Patience
    memory: int
    idle: float
    cancel_grace: float
    on_kill_timeout: float
    quarantine: int

    def drain(self, *, is_killing: bool) -> float:
        """How long a host may take to end; an `on_kill` that is being run keeps its full time."""
        return self.cancel_grace + (self.on_kill_timeout if is_killing else 0.0) + _LAST_WORDS_SECONDS

    def stop_time(self, reason: CancelReason | None) -> float:
        """How long a host may take to stop a trigger before it is not to be trusted with it any longer."""
        on_kill = self.on_kill_timeout if reason is CancelReason.KILLED else 0.0
        return self.cancel_grace + on_kill + _STUCK_SLACK


class HostsOwner(msgspec.Struct, frozen=True):
    """Who is told what happens in the hosts."""

    report: Callable[[HostProcess, Report], None]
    # These have no host any more; whether each had its time to stop.
    orphans: Callable[[list[tuple[Held, bool]]], None]
    fail: Callable[[Held, str], None]
    note: Callable[[Held, str], None]


class Hosts:
    """Starts hosts when there is something to run, and ends them when there is not."""

    def __init__(self, plan: HostPlan, limits: HostLimits, owner: HostsOwner) -> None:
        self._plan, self._limits, self._owner = plan, limits, owner
        self._loop = asyncio.get_running_loop()
        self._all: list[HostProcess] = []
        self._current: HostProcess | None = None
        self._waiting: list[Held] = []
        self._numbers = 0
        self._crashes = 0
        self._not_before = 0.0
        self._retry: asyncio.TimerHandle | None = None
        self._check: asyncio.TimerHandle | None = None
        self._checked = time.monotonic()
        self._look_from = 0.0
        self._is_paused = False
        self._none_left = asyncio.Event()
        self._none_left.set()
        self.trouble: str | None = None

    @property
    def count(self) -> int:
        return len(self._all)

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @property
    def quarantined(self) -> int:
        return sum(host.is_alone for host in self._all)

    @property
    def pids(self) -> list[int]:
        return [host.pid for host in self._all]

    def find(self, trigger_id: int) -> Held | None:
        """The trigger as one of the hosts has it, even if only to clean up after it."""
        return next((found for host in self._all if (found := host.running.get(trigger_id)) is not None), None)

    def start(self, held: Iterable[Held]) -> None:
        """Have these run, as soon as a host can be had."""
        shared = []
        for one in held:
            if one.phase is Phase.OVER:
                continue
            if one.stream is not None:
                self._start_together(one.stream, one)
            elif one.alone:
                self._start_alone(one)
            elif one.part is not None:
                self._start_in(one.part, one)
            else:
                shared.append(one)
        if not shared:
            return
        host = self._for_new()
        if host is None:
            self._waiting += shared
        else:
            host.start(shared)

    def take_waiting(self) -> list[Held]:
        """Those for whom no host could be had yet; they are the caller's again."""
        waiting, self._waiting = [one for one in self._waiting if one.phase is not Phase.OVER], []
        return waiting

    def cancel(self, held: Iterable[Held], reason: CancelReason) -> None:
        """Tell the hosts of these to stop them; those without a host have nothing to stop."""
        by_host: dict[HostProcess, list[tuple[Held, CancelReason]]] = {}
        for one in held:
            if one.host is not None:
                by_host.setdefault(one.host, []).append((one, reason))
        for host, some in by_host.items():
            host.cancel(some)

    @property
    def streams(self) -> list[dict[str, Any]]:
        """What the processes said last about their streams."""
        return [figures for host in self._all for figures in host.streams]

    def changed(self) -> list[tuple[HostProcess, str]]:
        """Processes that run code of files that have changed since; they get nothing more."""
        found = []
        for host in self._all:
            if not host.is_draining and host.running and (changed := changed_file(host.files)) is not None:
                self._retire(host, f"{changed} has changed")
                found.append((host, changed))
        return found

    def tell(self, command: Command) -> None:
        for host in self._all:
            host.send(command)

    def pause(self) -> None:
        """Hear nothing for a while: more was heard than could be stored."""
        if not self._is_paused:
            self._is_paused = True
            for host in self._all:
                host.pause()

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            for host in self._all:
                host.resume()

    async def close(self) -> None:
        """Have every host stop what it runs and end; bounded, for what does not end is killed."""
        self._waiting.clear()
        self._stop_timers()
        self.resume()
        self._current = None
        for host in list(self._all):
            self._drain(host)
        await self._none_left.wait()
        self._stop_timers()

    def kill(self) -> None:
        """End every host now."""
        for host in list(self._all):
            host.is_draining = True
            host.kill()

    # --- which host ------------------------------------------------------------------------------------------------

    def _for_new(self) -> HostProcess | None:
        current, now = self._current, time.monotonic()
        if current is not None and now >= self._look_from:
            changed = changed_file(current.files)
            self._look_from = now + _LOOK_SHARE * (time.monotonic() - now)
            if changed is not None:
                self._retire(current, f"{changed} has changed")
        if self._current is None and now >= self._not_before:
            self._current = self._spawn()
        if self._current is None:
            self._try_later(max(self._not_before - now, _FIRST_PAUSE))
        return self._current

    def _start_alone(self, one: Held) -> None:
        host = self._spawn() if time.monotonic() >= self._not_before else None
        if host is None:
            self._waiting.append(one)
            self._try_later(_FIRST_PAUSE)
            return
        host.is_alone = True
        host.retired = "it is for one trigger alone"
        host.start([one])

    def _start_in(self, part: Part, one: Held) -> None:
        host = part.host
        if host is None or host.is_over or host.is_draining:
            host = part.host = self._spawn() if time.monotonic() >= self._not_before else None
        if host is None:
            self._waiting.append(one)
            self._try_later(_FIRST_PAUSE)
            return
        host.retired = "it is for some triggers of one that was too large"
        host.start([one])

    def _start_together(self, stream: Stream, one: Held) -> None:
        host = stream.host
        if host is None or host.is_over or host.is_draining:
            host = stream.host = self._for_stream(stream)
            if host is not None:
                self.tell_members(stream)
        if host is None:
            self._waiting.append(one)
            self._try_later(_FIRST_PAUSE)
        else:
            host.start([one])

    def _for_stream(self, stream: Stream) -> HostProcess | None:
        if not stream.alone:
            return self._for_new()
        host = self._spawn() if time.monotonic() >= self._not_before else None
        if host is not None:
            host.is_alone = True
            host.retired = "it is for one stream alone"
        return host

    def tell_members(self, stream: Stream) -> None:
        """Let the process of a stream know who reads it, those that rest at the moment included."""
        if stream.host is not None and not stream.host.is_over:
            stream.host.send(Registered(stream.key, sorted(stream.members)))

    def _spawn(self) -> HostProcess | None:
        self._numbers += 1
        try:
            host = HostProcess(self._plan, self._numbers, on_report=self._heard, on_end=self._ended)
        except OSError as error:
            self.trouble = f"no process for triggers can be started: {error}"
            log.error("The triggerer cannot start a process for triggers and tries again: %s", error)
            self._back_off()
            return None
        log.info("Triggers run in process %s", host.pid)
        self._all.append(host)
        self._none_left.clear()
        if self._check is None:
            self._checked = time.monotonic()
            self._check = self._loop.call_later(_CHECK_SECONDS, self._look_at_all)
        return host

    def _try_later(self, seconds: float) -> None:
        if self._retry is None:
            self._retry = self._loop.call_later(seconds, self._start_waiting)

    def _start_waiting(self) -> None:
        self._retry = None
        waiting = self.take_waiting()
        if not waiting and time.monotonic() < self._not_before:
            self._try_later(_LONGEST_PAUSE)
        elif not waiting:
            # Nothing is left to find out by whether processes come up again; the next trigger will tell.
            self.trouble = None
        self.start(waiting)

    def _back_off(self) -> None:
        self._crashes += 1
        self._not_before = time.monotonic() + min(_FIRST_PAUSE * 2**self._crashes, _LONGEST_PAUSE)

    def _retire(self, host: HostProcess, why: str) -> None:
        """Give it nothing more; it ends when what it runs has ended."""
        if host.retired is None:
            host.retired = why
            log.info("The process %s gets no more triggers: %s", host.pid, why)
        if host is self._current:
            self._current = None

    # --- what is heard ---------------------------------------------------------------------------------------------

    def _heard(self, host: HostProcess, report: Report) -> None:
        match report:
            case Alive(memory=memory):
                host.memory, host.blocked = memory, None
                self.trouble = None
            case Blocking():
                host.blocked = _blocked(report)
                log.warning("The process %s stands still: %s", host.pid, host.blocked.where)
            case Stuck(trigger_id):
                host.stuck.add(trigger_id)
                self._retire(host, "a trigger in it ignores that it was told to stop")
            case Loaded(files):
                host.files.update(files)
            case Streams(figures):
                host.streams = figures
            case _:
                self._owner.report(host, report)

    def _look_at_all(self) -> None:
        self._check = None
        now = time.monotonic()
        if now - self._checked > _OWN_STALL or self._is_paused:
            for host in self._all:
                host.heard = now
        self._checked = now
        for host in list(self._all):
            self._look_at(host, now)
        if self._all:
            self._check = self._loop.call_later(_CHECK_SECONDS, self._look_at_all)

    def _look_at(self, host: HostProcess, now: float) -> None:
        for trigger_id, since in host.cancels.items():
            held = host.running.get(trigger_id)
            if held is not None and now - since > self._limits.stop_time(held.cancelled):
                host.stuck.add(trigger_id)
        if host.stuck:
            self._retire(host, "a trigger in it ignores that it was told to stop")
        if host.is_alone and host.memory > self._limits.memory:
            self._divide(host)
        elif not host.is_alone and not host.is_draining:
            self._judge(host, now)
        if not host.running:
            if host.retired is not None or now - host.empty_since > self._limits.idle:
                self._retire(host, "it has nothing to run")
                self._drain(host)
        elif host.running.keys() <= host.stuck:
            host.kill("only triggers that ignore being stopped were left in it")

    def _judge(self, host: HostProcess, now: float) -> None:
        signs = Signs(has_spoken=host.has_spoken, silent=now - host.heard, blocked=host.blocked, memory=host.memory)
        match judge(signs, self._limits.patience, self._limits.memory):
            case Verdict.FINE:
                return
            case Verdict.SILENT:
                host.blamed = host.stepped
                self._replace(host, f"it was silent for {signs.silent:.1f} s")
            case Verdict.BLOCKED:
                assert host.blocked is not None
                host.blamed = host.blocked.trigger_id
                self._replace(host, f"it stood still for {host.blocked.seconds:.1f} s: {host.blocked.where}")
            case Verdict.TOO_LARGE:
                self._divide(host)

    def _divide(self, host: HostProcess) -> None:
        """Have two others run what one has become too large with; a trigger that was the only one fails."""
        if host.is_draining:
            return
        used = host.memory // 2**20
        log.error("The process %s is replaced: it uses %d MiB", host.pid, used)
        for one in [one for one in host.running.values() if one.stream is not None]:
            self._isolate_stream(one, used)
        members = [one for one in host.running.values() if one.phase is Phase.RUNNING and one.stream is None]
        half = -(-len(members) // 2)
        for some in (members[:half], members[half:]):
            part = Part(len(some))
            for one in some:
                if one.alone or (one.part is not None and one.part.size == 1):
                    limit = self._limits.memory // 2**20
                    self._owner.fail(one, f"alone in a process it used {used} MiB of memory, but {limit} are allowed")
                one.part = part
        self._retire(host, "it is too large")
        # What it still runs is started elsewhere as it lets go of it.
        self._drain(host)

    def _isolate_stream(self, one: Held, used: int) -> None:
        """A stream cannot be divided: it goes on in a process of its own, and one that has it already fails."""
        assert one.stream is not None
        if one.stream.alone and one.host is one.stream.host:
            limit = self._limits.memory // 2**20
            self._owner.fail(one, f"its stream alone in a process used {used} MiB of memory, but {limit} are allowed")
        else:
            one.stream.alone = True

    def _drain(self, host: HostProcess) -> None:
        is_killing = any(one.phase is Phase.KILLING for one in host.running.values())
        host.drain(self._limits.drain(is_killing=is_killing))

    def _replace(self, host: HostProcess, why: str) -> None:
        log.error("The process %s is ended and its triggers go on in another: %s", host.pid, why)
        self._retire(host, why)
        host.kill(why)

    # --- the end of a host -----------------------------------------------------------------------------------------

    def _ended(self, host: HostProcess) -> None:
        self._all.remove(host)
        if host is self._current:
            self._current = None
        died = host.ended_for is None and not host.is_draining
        if died:
            log.error("The process %s that ran triggers %s", host.pid, host.words)
            self._note_death(host)
        orphans = list(host.running.values())
        offender = None if host.blamed is None or host.is_draining else host.running.get(host.blamed)
        host.running.clear()
        for one in orphans:
            one.host = None
        if offender is not None and offender.phase is Phase.RUNNING:
            self._blame(offender, host, died=died)
        self._owner.orphans([(one, one.id in host.stuck) for one in orphans])
        if not self._all:
            self._none_left.set()

    def _note_death(self, host: HostProcess) -> None:
        if host.age > _YOUNG_SECONDS:
            self._crashes = 0
            return
        self._back_off()
        if not host.has_spoken:
            self.trouble = f"processes for triggers do not come up: the last one {host.words}"

    def _blame(self, one: Held, host: HostProcess, *, died: bool) -> None:
        """Whoever harmed its host goes on alone, if it may go on at all."""
        has_room = self.quarantined < self._limits.quarantine
        if died:
            one.deaths += 1
            if one.deaths >= _MOST_DEATHS:
                self._owner.fail(one, f"its trigger ended the process that ran it {one.deaths} times")
                return
            self._isolate(one, has_room)
            self._owner.note(one, f"The process that ran this trigger {host.words} in its code; it is started again")
        elif has_room:
            self._isolate(one, True)
            self._owner.note(one, f"The trigger is moved to a process of its own: {host.ended_for}")
        else:
            text = f"its trigger held up all others, and no process of its own could be given to it: {host.ended_for}"
            self._owner.fail(one, text)

    @staticmethod
    def _isolate(one: Held, has_room: bool) -> None:
        if one.stream is not None:
            # Those that read with it go along: a stream that is read in two places is two.
            one.stream.alone = one.stream.alone or has_room
        else:
            one.alone = one.alone or has_room

    def _stop_timers(self) -> None:
        for timer in (self._retry, self._check):
            if timer is not None:
                timer.cancel()
        self._retry = self._check = None


def changed_file(files: dict[str, str]) -> str | None:
    """The first file that is no longer what was imported. None: all are."""
    for path, fingerprint in files.items():
        try:
            found = os.stat(path)
        except OSError:
            return path
        if f"{found.st_mtime_ns}-{found.st_size}" != fingerprint:
            return path
    return None


def _blocked(report: Blocking) -> Blocked:
    where = f"{report.file}:{report.line} in {report.function}"
    return Blocked(report.trigger_id, report.seconds, where, is_importing=is_importing(report.stack))
