"""What the host does with itself: one loop, one socket, and the triggers it is given."""

import asyncio
import gc
import importlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn

from stannel.protocol.triggering import (
    Alive,
    Answer,
    CancelTriggers,
    Command,
    Confirmed,
    Drain,
    HostSetup,
    Loaded,
    News,
    Registered,
    StartTriggers,
    Streams,
)
from stannel.sdk.comms import use_channel
from stannel.supervisor.groups import die_with_parent
from stannel.triggerer.host.code import Code
from stannel.triggerer.host.imports import Imports
from stannel.triggerer.host.lives import Lives
from stannel.triggerer.host.loglines import Output
from stannel.triggerer.host.scope import Steps, make_task, share_step
from stannel.triggerer.host.services import Services
from stannel.triggerer.host.streams import HostStreams
from stannel.triggerer.host.watch import Turns, Watch
from stannel.triggerer.host.wire import Wire
from stannel.triggers.asking import use_asker

_SETUP = "stannel.compat.airflow:install_if_absent"
_BEAT_SECONDS = 0.25
_FLUSH_SECONDS = 5.0
# What was fired last is stored and confirmed within milliseconds, unless the store is away.
_CONFIRM_SECONDS, _STREAMS_SECONDS = 1.0, 3.0
_STREAMS_EVERY = 1.0
# With nobody left to report to, the triggers get a moment to put things in order, and no more.
_ORPHAN_SECONDS = 1.0
# Triggers are many small objects that live long: looking through all of them often finds nothing.
_GC_THRESHOLDS = (20_000, 20, 50)

_log = logging.getLogger("stannel.triggerer")


class Host:
    """Wires the parts together, and obeys."""

    def __init__(self, wire: Wire, setup: HostSetup) -> None:
        self._wire, self._setup = wire, setup
        self._output = Output(wire, setup.log_level)
        self._turns = Turns()
        self._loop = asyncio.SelectorEventLoop(self._turns)
        self._loop.set_task_factory(make_task)
        self._loop.set_exception_handler(_complain)
        self._code = Code(setup.dags_folder)
        self._services = Services(wire, self._loop, self._beat)
        imports = Imports(self._loop, self._code, self._tell_loaded)
        self._streams = HostStreams(self._loop, wire, setup.streams)
        self._lives = Lives(self._loop, wire, imports, self._output, self._streams, setup)
        self._watch = Watch(
            self._turns,
            wire,
            self._output,
            patience=setup.blocked_warning,
            is_excused=lambda: self._services.is_pumping,
        )
        self._ending: asyncio.Task[None] | None = None
        self._last_beat = self._told_streams = 0.0
        self._has_streams = False
        self._is_over = False

    def run(self) -> None:
        """Until it is told to drain, or nobody is left to tell it anything."""
        asyncio.set_event_loop(self._loop)
        self._wire.attach(self._loop, take=self._take, on_answer=self._services.answered, on_end=self._on_end)
        self._watch.start()
        self._loop.call_soon(self._tick)
        with use_channel(self._services), use_asker(self._services):
            while not self._is_over:
                try:
                    self._loop.run_forever()
                except (SystemExit, KeyboardInterrupt) as error:
                    _log.error("A callback of a trigger raised %s; it is ignored", type(error).__name__)

    def _take(self, command: Command) -> None:
        match command:
            case StartTriggers(triggers):
                self._lives.start(triggers)
            case CancelTriggers(triggers):
                for trigger_id, reason in triggers:
                    self._lives.cancel(trigger_id, reason)
            case News(dag_ids):
                self._services.news(dag_ids)
            case Confirmed(numbers):
                self._streams.confirm(numbers)
            case Registered(stream_key, ids):
                self._streams.register(stream_key, ids)
            case Drain():
                self._end(self._setup.cancel_grace, self._setup.on_kill_timeout + self._setup.cancel_grace)
            case HostSetup() | Answer():
                _log.error("A command came that has no place here; it is ignored")

    def _on_end(self) -> None:
        self._end(min(_ORPHAN_SECONDS, self._setup.cancel_grace), 0.0)

    def _end(self, seconds: float, kill_seconds: float) -> None:
        if self._ending is None or self._wire.is_over:
            self._ending = self._loop.create_task(self._ended(seconds, kill_seconds))

    async def _ended(self, seconds: float, kill_seconds: float) -> None:
        await self._lives.end_all(seconds=seconds, kill_seconds=kill_seconds)
        try:
            async with asyncio.timeout(_STREAMS_SECONDS):
                await self._streams.end(0 if self._wire.is_over else _CONFIRM_SECONDS)
        except TimeoutError:
            _log.warning("Not every shared stream could be closed in time; their brokers repeat what is not settled")
        self._is_over = True
        self._loop.stop()

    def _tick(self) -> None:
        self._beat()
        self._loop.call_later(_BEAT_SECONDS, self._tick)

    def _beat(self) -> None:
        """Say that the loop turns, not more often than is useful."""
        now = self._loop.time()
        if now - self._last_beat < _BEAT_SECONDS / 2:
            return
        self._last_beat = now
        self._tell_loaded()
        self._tell_streams(now)
        self._wire.report(Alive(self._turns.count, len(self._lives), _memory()))

    def _tell_loaded(self) -> None:
        files = self._code.newly_loaded()
        if files:
            self._wire.report(Loaded(files))

    def _tell_streams(self, now: float) -> None:
        if now - self._told_streams < _STREAMS_EVERY:
            return
        self._told_streams = now
        figures = self._streams.figures()
        if figures or self._has_streams:
            self._has_streams = bool(figures)
            self._wire.report(Streams(figures))


def _memory() -> int:
    """The resident memory of this process in bytes."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def _complain(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What the loop has to say about a task is a line in the log of the trigger that began it."""
    task = context.get("task") or context.get("future")
    coroutine = task.get_coro() if isinstance(task, asyncio.Task) else None
    trigger_id = coroutine.owner.id if isinstance(coroutine, Steps) else None
    _log.error("%s", context.get("message"), exc_info=context.get("exception"), extra={"trigger_id": trigger_id})


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """The triggerer says when to stop. A handler, unlike SIG_IGN, is not inherited by programs that triggers start."""


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the host on the socket with the given descriptor, and leave without waiting for anybody's threads."""
    code = 1
    try:
        signal.signal(signal.SIGINT, _ignore)
        signal.signal(signal.SIGTERM, _ignore)
        # An end of file on the socket tells the same, but not to a loop that stands still.
        die_with_parent()
        for descriptor in arguments:
            os.set_inheritable(int(descriptor), False)
        if len(arguments) > 1:
            share_step(int(arguments[1]))
        wire = Wire(socket.socket(fileno=int(arguments[0])))
        setup = wire.read_setup()
        if setup is not None:
            _serve(wire, setup)
        code = 0
    finally:
        os._exit(code)


def _serve(wire: Wire, setup: HostSetup) -> None:
    module, _, function = _SETUP.partition(":")
    getattr(importlib.import_module(module), function)()
    host = Host(wire, setup)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        host.run()
    except BaseException:
        _log.exception("The host of the triggers ends because of an error of its own")
        raise
    finally:
        wire.flush_all(_FLUSH_SECONDS)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
