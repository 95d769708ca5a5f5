"""Watches over one attempt from its start to its end: hears it, answers it, stops it, and says how it went.

`Supervision.run` is the life of an attempt. Everything that happens meanwhile (bytes, timers, the end of the process)
arrives in short callbacks that note it down and wake `run`; only `run` decides, and only it talks to the desk.
"""

import asyncio
import signal
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
from msgspec import structs

from stannel.errors import StannelError
from stannel.model.run import Attempt, Outcome
from stannel.model.states import TaskState as State
from stannel.protocol.data import unmapped
from stannel.protocol.errors import ProtocolBroken
from stannel.protocol.replies import ConnectionResult, Reply, StartupDetails, VariableResult
from stannel.protocol.requests import (
    MaskSecret,
    Request,
    ResendLoggingFD,
    SetRenderedFields,
    SetRenderedMapIndex,
    SkipDownstreamTasks,
    Terminal,
)
from stannel.protocol.schema import ErrorCode
from stannel.protocol.session import Event, Malformed, Received, Reported, SupervisorSession
from stannel.supervisor.decide import Halt, by_exit, by_halt, by_message
from stannel.supervisor.desk import Desk, Limits, Refused
from stannel.supervisor.launch import CannotStart, Launch, Process, Wires
from stannel.supervisor.loglines import Lines
from stannel.supervisor.streams import Stream
from stannel.supervisor.tasklog import TaskLog

_MOST_REQUESTS_WAITING = 64
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


class Supervision:
    """One attempt being run. `cancel` may be called at any time while `run` runs."""

    def __init__(
        self, attempt: Attempt, startup: StartupDetails, launch: Launch, desk: Desk, log: TaskLog, limits: Limits
    ) -> None:
        self._attempt, self._startup, self._launch = attempt, startup, launch
        self._desk, self._log, self._limits = desk, log, limits
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._session = SupervisorSession(frame_limit=limits.frame_limit)
        self._events: deque[Event] = deque()
        self._waker: asyncio.Future[None] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._process: Process | None = None
        self._comm: Stream | None = None
        self._streams: tuple[Stream, ...] = ()
        self._halt: Halt | None = None
        self._outcome: Outcome | None = None
        self._skip: list[tuple[str, int]] = []
        self._map_label: str | None = None
        self._is_introduced = False
        self._is_terminated = False
        self._was_told = False

    async def run(self) -> Outcome:
        """The attempt's whole life. When this returns, no process of its group is left and its log is complete.

        If this is cancelled the process is killed at once and nothing is reported."""
        try:
            greeting = self._session.greet(self._startup)
            process, wires = await self._launch.start(self._attempt)
        except Exception as error:  # noqa: BLE001 - whatever it was, the attempt must not stay without an outcome
            return await self._end_unstarted(error)
        try:
            self._attend(process, wires, greeting)
            while await self._goes_on():
                pass
            return await self._conclude(process)
        finally:
            self._let_go(process)

    @property
    def pid(self) -> int | None:
        """None: there is no process yet."""
        return self._process.pid if self._process is not None else None

    def cancel(self, reason: str, state: State | None = None) -> None:
        """Stop the process group, kindly first. `state` is the outcome; None: failed, or retry if that is allowed.

        A result that was already reported stands.
        """
        self._stop(Halt(reason, state))

    async def _goes_on(self) -> bool:
        assert self._comm is not None
        while self._events and not self._comm.is_blocked:
            await self._handle(self._events.popleft())
        if self._events:
            await self._news()
            return True
        self._comm.resume()
        if self._is_over():
            return False
        await self._news()
        return True

    def _is_over(self) -> bool:
        return self._process is not None and self._process.exit is not None and not self._has_open_streams()

    async def _news(self) -> None:
        self._waker = self._loop.create_future()
        await self._waker

    def _wake(self) -> None:
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    # -- what happens meanwhile

    def _attend(self, process: Process, wires: Wires, greeting: bytes) -> None:
        loop, log = self._loop, self._log
        self._process = process
        self._comm = Stream(loop, wires.comm, self._heard, self._wake, self._wake)
        self._streams = (
            self._comm,
            self._lines_of(wires.logs, log.records),
            self._lines_of(wires.stdout, lambda lines: log.output("task.stdout", "info", lines)),
            self._lines_of(wires.stderr, lambda lines: log.output("task.stderr", "error", lines)),
        )
        self._comm.send(greeting)
        process.watch(self._introduce, self._exited)
        left = self._attempt.seconds_left(_now())
        if left is not None:
            self._after(left + self._limits.timeout_slack, self._timed_out)
        if self._halt is not None:
            self._terminate()

    def _lines_of(self, fd: int, write: Callable[[list[str]], None]) -> Stream:
        lines = Lines()

        def take(data: bytes) -> None:
            self._introduce()
            write(lines.feed(data))

        def end() -> None:
            write(lines.end())
            self._wake()

        return Stream(self._loop, fd, take, end)

    def _heard(self, data: bytes) -> None:
        try:
            self._events.extend(self._session.feed(data))
        except ProtocolBroken as error:
            self._break_off(f"its process broke the protocol: {error.reason}")
        if len(self._events) > _MOST_REQUESTS_WAITING and self._comm is not None:
            self._comm.pause()
        self._wake()

    def _exited(self) -> None:
        for stream in self._streams:
            stream.drain()
        if self._has_open_streams():
            self._after(self._limits.drain, self._close_streams)
        self._wake()

    def _has_open_streams(self) -> bool:
        return any(stream.is_open for stream in self._streams)

    def _close_streams(self) -> None:
        for stream in self._streams:
            stream.close()
        self._wake()

    def _introduce(self) -> None:
        if not self._is_introduced and self._process is not None:
            self._is_introduced = True
            self._log.note(f"{self._attempt.label} started as process {self._process.pid or '(being forked)'}")

    def _after(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.append(self._loop.call_later(seconds, callback))

    # -- stopping

    def _stop(self, halt: Halt) -> None:
        if self._halt is None and self._outcome is None:
            self._halt = halt
            self._log.note(f"Stopping: {halt.reason}", "warning")
        # Once: a second SIGTERM would interrupt the task while it cleans up after the first.
        if self._process is not None and not self._is_terminated:
            self._terminate()

    def _terminate(self) -> None:
        assert self._process is not None
        self._is_terminated = True
        self._process.signal(signal.SIGTERM)
        self._after(self._limits.term_grace, self._kill)

    def _kill(self) -> None:
        assert self._process is not None
        self._process.signal(signal.SIGKILL)

    def _timed_out(self) -> None:
        if self._outcome is None:
            self._stop(Halt(f"execution timeout of {self._attempt.execution_timeout:g}s"))

    def _overstayed(self) -> None:
        self._log.note(f"The process is still there {self._limits.overtime:g}s after its result; ending it", "warning")
        self._terminate()

    def _break_off(self, reason: str) -> None:
        """The process can no longer be understood: no more listening, no grace."""
        if self._halt is None:
            self._halt = Halt(reason)
        self._kill()
        if self._comm is not None:
            self._comm.close()

    # -- answering

    async def _handle(self, event: Event) -> None:
        assert self._comm is not None
        match event:
            case Received(request_id, request) if isinstance(request, Terminal):
                await self._finish(request_id, request)
            case Received(request_id, request):
                self._comm.send(await self._reply(request_id, request))
            case Malformed(request_id, detail):
                self._comm.send(self._session.refuse(request_id, ErrorCode.GENERIC_ERROR, detail))
            case Reported(_, error, detail):
                self._break_off(f"its process could not follow the protocol: {error} {detail or ''}".rstrip())

    async def _reply(self, request_id: int, request: Request) -> bytes:
        try:
            async with asyncio.timeout(self._limits.answer):
                answer = await self._answer(request)
        except Refused as refusal:
            slot = self._session.not_found if refusal.in_body else self._session.refuse
            return slot(request_id, refusal.code, refusal.detail)
        except Exception as error:  # noqa: BLE001 - whatever fails behind the desk, the task gets an answer
            self._log.note(f"{type(request).__name__} could not be answered", "error", error_detail=repr(error))
            detail = {"status_code": None, "message": str(error), "exception_type": type(error).__name__}
            return self._session.refuse(request_id, ErrorCode.API_SERVER_ERROR, detail)
        return self._session.reply(request_id, answer)

    async def _answer(self, request: Request) -> Reply | None:
        match request:
            case SkipDownstreamTasks(tasks):
                self._skip += [(task, -1) if isinstance(task, str) else (task[0], unmapped(task[1])) for task in tasks]
            case SetRenderedMapIndex(label):
                self._map_label = label
            case MaskSecret(value, name):
                self._log.mask.add(value, name)
            case SetRenderedFields(fields):
                return await self._desk.answer(self._attempt, SetRenderedFields(self._log.redact(fields)))
            case ResendLoggingFD():
                raise Refused(ErrorCode.GENERIC_ERROR, {"message": "the log descriptor is sent once, at the start"})
            case _:
                reply = await self._desk.answer(self._attempt, request)
                self._keep_secret(reply)
                return reply
        return None

    def _keep_secret(self, reply: Reply | None) -> None:
        match reply:
            case ConnectionResult(password=password, extra=extra):
                self._log.mask.add(password)
                if extra:
                    self._log.mask.add(_fields_of(extra), "extra")
            case VariableResult(key, value):
                self._log.mask.add(value, key)
            case _:
                return

    async def _finish(self, request_id: int, message: Terminal) -> None:
        assert self._comm is not None
        if self._outcome is not None:
            detail = {"message": "a result was already reported for this attempt; this one is ignored"}
            self._comm.send(self._session.refuse(request_id, ErrorCode.GENERIC_ERROR, detail))
            return
        ack = self._session.reply(request_id)
        self._was_told = True
        if self._halt is None:
            outcome = by_message(self._attempt, message, _now())
            label = outcome.rendered_map_index or self._map_label
            self._outcome = structs.replace(outcome, skip=tuple(self._skip), rendered_map_index=label)
            self._after(self._limits.overtime, self._overstayed)
            # The process may wait for the acknowledgement; a slow store must not keep it for long.
            early = self._loop.call_later(self._limits.ack, self._comm.send, ack)
            for stream in self._streams[1:]:
                stream.drain()
            await self._report(self._outcome)
            if early.when() <= self._loop.time():
                return
            early.cancel()
        self._comm.send(ack)

    # -- the end

    async def _conclude(self, process: Process) -> Outcome:
        outcome = self._outcome
        if outcome is None:
            outcome = self._outcome = self._decided(process)
            await self._report(outcome)
        elif process.exit is not None and not process.exit.is_clean:
            self._log.note(f"After its result the process {process.exit.words}", "warning")
        self._introduce()
        reason = f": {outcome.reason}" if outcome.reason else ""
        took = (self._loop.time() - self._began) * 1000
        level = "info" if outcome.state in _GOOD_ENDS else "error"
        self._log.note(f"Ended {outcome.state} after {took:.0f} ms{reason}", level)
        return outcome

    def _decided(self, process: Process) -> Outcome:
        if self._halt is not None:
            return by_halt(self._attempt, self._halt, _now(), was_told=self._was_told)
        return by_exit(self._attempt, process.exit, _now())

    async def _end_unstarted(self, error: Exception) -> Outcome:
        reason = str(error) if isinstance(error, StannelError) else f"{type(error).__name__}: {error}"
        fields = {"error_detail": error.detail} if isinstance(error, CannotStart) and error.detail else {}
        self._log.note(f"{self._attempt.label} could not be started: {reason}", "error", **fields)
        outcome = by_halt(self._attempt, self._halt or Halt(reason), _now(), was_told=False)
        await self._report(outcome)
        self._log.close()
        return outcome

    async def _report(self, outcome: Outcome) -> None:
        # Whoever sees the result finds what led to it in the log.
        self._log.flush()
        deadline, pause = self._loop.time() + self._limits.report, _FIRST_PAUSE
        while True:
            try:
                accepted = await self._desk.finish(self._attempt, outcome)
            except Exception as error:  # noqa: BLE001 - a result must not be lost to a store that is away for a moment
                if self._loop.time() > deadline:
                    self._log.note("The result could not be stored; the attempt will count as lost", "error")
                    return
                self._log.note(f"The result could not be stored yet, trying again: {error!r}", "warning")
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                if not accepted:
                    self._log.note("The result was not stored: the attempt had been decided elsewhere", "warning")
                return

    def _let_go(self, process: Process) -> None:
        if process.exit is None:
            process.signal(signal.SIGKILL)
        for timer in self._timers:
            timer.cancel()
        for stream in self._streams:
            stream.close()
        self._log.close()


_GOOD_ENDS = frozenset({State.SUCCESS, State.SKIPPED, State.DEFERRED, State.UP_FOR_RESCHEDULE})


def _fields_of(extra: str) -> object:
    try:
        return msgspec.json.decode(extra)
    except msgspec.DecodeError:
        return {"secret": extra}


def _now() -> datetime:
    return datetime.now(UTC)
