"""One host: a child process that runs triggers, the wire to it, and what was heard of it."""

import asyncio
import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from stannel.model.masking import SecretMask
from stannel.model.trigger import CancelReason
from stannel.protocol.errors import ProtocolBroken
from stannel.protocol.frames import Frames
from stannel.protocol.triggering import (
    CancelTriggers,
    Command,
    Drain,
    HostSetup,
    Report,
    StartTriggers,
    decode_report,
    frame,
)
from stannel.supervisor.groups import signal_group
from stannel.triggerer.health import Blocked
from stannel.triggerer.held import Held
from stannel.triggerer.wire import Wire

_SLOT_BYTES = 8
# A frame of this many triggers is begun with before the rest is decoded.
_STARTS_PER_FRAME = 250
# The last words of a process are there as soon as it is gone, unless a stranger inherited its socket.
_LAST_WORDS_SECONDS = 1.0


class HostPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How a host is started."""

    setup: HostSetup
    environ: Mapping[str, str]
    log_file: Path
    frame_limit: int
    sensitive_names: tuple[str, ...] = ()


class HostProcess:
    """A host from its start to its end. `on_report` hears what it says, `on_end` that it is gone, once."""

    def __init__(
        self,
        plan: HostPlan,
        number: int,
        *,
        on_report: Callable[["HostProcess", Report], None],
        on_end: Callable[["HostProcess"], None],
    ) -> None:
        self.number, self._plan = number, plan
        self._on_report, self._on_end = on_report, on_end
        self._loop = asyncio.get_running_loop()
        self.running: dict[int, Held] = {}
        self.stuck: set[int] = set()
        self.files: dict[str, str] = {}
        self.mask = SecretMask(plan.sensitive_names)
        self.asking = 0
        self.is_alone = False
        self.retired: str | None = None
        # Why we ended it ourselves; None while it lives, and when it died on its own.
        self.ended_for: str | None = None
        self.blamed: int | None = None
        self.is_draining = False
        self.has_spoken = False
        self.born = self.heard = self.empty_since = time.monotonic()
        self.blocked: Blocked | None = None
        self.memory = 0
        self.cancels: dict[int, float] = {}
        self.streams: list[dict[str, Any]] = []
        self._frames = Frames(plan.frame_limit)
        self._is_over = False
        self._timers: list[asyncio.TimerHandle] = []
        slot_fd = os.memfd_create("stannel-host", os.MFD_CLOEXEC)
        try:
            os.ftruncate(slot_fd, _SLOT_BYTES)
            self._slot = mmap.mmap(slot_fd, _SLOT_BYTES)
            self._process, self._wire = self._spawn(slot_fd)
        finally:
            os.close(slot_fd)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._exited)
        self.send(plan.setup)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def age(self) -> float:
        return time.monotonic() - self.born

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def stepped(self) -> int | None:
        """The trigger whose code is running, or ran last before everything stopped. None: nobody's."""
        return int.from_bytes(self._slot[:_SLOT_BYTES], "little", signed=True) or None

    @property
    def words(self) -> str:
        """How it ended."""
        status = self._process.returncode
        if status is None:
            return "has not ended"
        if status < 0:
            with contextlib.suppress(ValueError):
                return f"was ended by {signal.Signals(-status).name}"
        return f"ended with status {status}"

    def send(self, command: Command) -> None:
        self._wire.send(frame(command))

    def start(self, held: list[Held]) -> None:
        """Have it run these; they are its own from now on."""
        for one in held:
            one.host, one.cancelled = self, None
            self.running[one.id] = one
        for first in range(0, len(held), _STARTS_PER_FRAME):
            self.send(StartTriggers([one.start() for one in held[first : first + _STARTS_PER_FRAME]]))

    def cancel(self, held: list[tuple[Held, CancelReason]]) -> None:
        """Tell it to stop these. One that was told already keeps its time."""
        fresh = [(one, reason) for one, reason in held if one.cancelled is None and one.id in self.running]
        now = time.monotonic()
        for one, reason in fresh:
            one.cancelled = reason
            self.cancels[one.id] = now
        if fresh:
            self.send(CancelTriggers([(one.id, reason) for one, reason in fresh]))

    def gone(self, trigger_id: int) -> Held | None:
        """It has let go of this trigger."""
        self.stuck.discard(trigger_id)
        self.cancels.pop(trigger_id, None)
        found = self.running.pop(trigger_id, None)
        if found is not None and not self.running:
            self.empty_since = time.monotonic()
        return found

    def drain(self, seconds: float) -> None:
        """Have it stop everything and end; it is killed if that takes longer."""
        if not self.is_draining:
            self.is_draining = True
            self.send(Drain())
            self._timers.append(self._loop.call_later(seconds, self.kill))

    def kill(self, why: str | None = None) -> None:
        """End it and all its own children, now."""
        if why is not None and self.ended_for is None:
            self.ended_for = why
        if self._process.returncode is None:
            signal_group(self._process.pid, signal.SIGKILL)

    def pause(self) -> None:
        self._wire.pause()

    def resume(self) -> None:
        if not self._wire.is_reading:
            # What it said meanwhile was not heard; that is no silence of its own.
            self.heard = time.monotonic()
            self._wire.resume()

    def _spawn(self, slot_fd: int) -> tuple[subprocess.Popen[bytes], Wire]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs, ours:
            self._plan.log_file.parent.mkdir(parents=True, exist_ok=True)
            with self._plan.log_file.open("ab") as log_file:
                # A session of its own: Ctrl-C on the terminal is ours to handle, and the whole group can be ended.
                process = subprocess.Popen(
                    [sys.executable, "-m", "stannel.triggerer.host", str(theirs.fileno()), str(slot_fd)],
                    stdin=subprocess.DEVNULL,
                    stdout=log_file,
                    stderr=log_file,
                    pass_fds=(theirs.fileno(), slot_fd),
                    env=dict(self._plan.environ),
                    start_new_session=True,
                )
            return process, Wire(self._loop, ours.detach(), self._take, self._hung_up)

    def _take(self, data: bytes) -> None:
        self.heard = time.monotonic()
        self.has_spoken = True
        try:
            for payload in self._frames.feed(data):
                self._on_report(self, decode_report(payload))
        except (ProtocolBroken, msgspec.MsgspecError) as error:
            self.kill(f"it said what cannot be understood: {error}")

    def _hung_up(self) -> None:
        if self._process.returncode is None:
            self.kill()
        self._end_if_over()

    def _exited(self) -> None:
        # Whatever it started goes with it; then nobody can hold its socket. Until it is reaped its number is its own.
        signal_group(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._wire.resume()
        self._timers.append(self._loop.call_later(_LAST_WORDS_SECONDS, self._wire.drain))
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self._is_over or self._wire.is_open or self._process.returncode is None:
            return
        self._is_over = True
        for timer in self._timers:
            timer.cancel()
        self.blamed = self.stepped if self.blamed is None else self.blamed
        self._slot.close()
        self._on_end(self)
