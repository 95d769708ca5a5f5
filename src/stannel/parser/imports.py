"""Imports DAG files in processes of their own: one fork each, a time limit, and one clear error whatever happens."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from stannel.errors import ImportFailed, ProtocolError
from stannel.model.dag import DagSpec, decode_dag
from stannel.parser.wire import LONGEST_RESULT, ParseOrder, ParseResult, decode_result, encode
from stannel.protocol.frames import Frames
from stannel.supervisor.base import BaseServer
from stannel.supervisor.child import Child
from stannel.supervisor.exits import Exit
from stannel.supervisor.orphans import Orphans

log = logging.getLogger(__name__)

_TARGET = "stannel.parser.child:parse"
# The SDK loads its parts when they are first used; here all are loaded once, for every import to come.
_PRELOAD = (
    "stannel.parser.child",
    "stannel.sdk.connection",
    "stannel.sdk.decorators",
    "stannel.sdk.operators",
    "stannel.sdk.variable",
)
_SETUP = ("stannel.compat.airflow:install_if_absent",)
_BIRTH_SECONDS = 30.0
# The import is told that its time is up, and killed if it does not listen.
_GRACE_SECONDS = 1.0
_FAREWELL_SECONDS = 3.0
_MOST_TRIES = 3
_CHUNK = 256 * 1024
_MOST_CHUNKS = 64
_OUTPUT_KEPT = 64 * 1024
_OUTPUT_SHOWN = 2000


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What a DAG file gave: DAGs, an error, or both."""

    dags: tuple[DagSpec, ...] = ()
    error: str | None = None
    dependencies: tuple[str, ...] = ()
    seconds: float = 0.0
    misses_module: bool = False


class Imports:
    """The fork server that imports are forked from. It starts on demand. Belongs to one running event loop."""

    def __init__(self, folder: Path, *, seconds: float, environ: Mapping[str, str]) -> None:
        self._folder, self._seconds = folder, seconds
        self._base = BaseServer(Orphans(), _PRELOAD, _SETUP, environ)
        self._is_running = False

    @property
    def server_pid(self) -> int | None:
        """The fork server's process. None: there is none now."""
        return self._base.process.pid if self._is_running and self._base.process else None

    def warm_up(self) -> None:
        """Start the fork server now, so that the first import does not wait for it."""
        self._base.connection()
        self._is_running = True

    async def close(self) -> None:
        """End the fork server and what it forked; the next import starts another."""
        if self._is_running:
            self._is_running = False
            await self._base.close(_FAREWELL_SECONDS)

    async def run(self, path: str) -> Imported:
        """Import one file of the folder. Raises `ImportFailed` only if no process could be made for it."""
        for tries in range(1, _MOST_TRIES + 1):
            attempt = _Attempt(self._order(path))
            await attempt.run(self._spawn)
            if attempt.is_unborn:
                await self.close()
                raise ImportFailed(path, f"the fork server did not answer within {_BIRTH_SECONDS:g} s")
            # Nobody kills an import by accident but the kernel when memory is short, and that may pass.
            if attempt.result is not None or not attempt.was_killed or tries == _MOST_TRIES:
                break
        return attempt.imported()

    def _order(self, path: str) -> ParseOrder:
        return ParseOrder(str(self._folder / path), str(self._folder), path, self._seconds)

    def _spawn(self, args: bytes, fds: list[int]) -> Child:
        self.warm_up()
        return self._base.connection().spawn(_TARGET, args, fds)


class _Attempt:
    """One process that imports one file."""

    def __init__(self, order: ParseOrder) -> None:
        self._order = order
        self._frames = Frames(LONGEST_RESULT)
        self._output = bytearray()
        self._exit: Exit | None = None
        self._is_too_slow = False
        self.is_unborn = False
        self._settled = asyncio.Event()
        self.result: ParseResult | None = None
        self._dags: tuple[DagSpec, ...] = ()
        self._broken: str | None = None

    @property
    def was_killed(self) -> bool:
        """Whether somebody else has killed it."""
        return self._exit is not None and self._exit.is_killed and not self._is_too_slow

    async def run(self, spawn: Callable[[bytes, list[int]], Child]) -> None:
        """Stay with the process until it and its group are gone."""
        with contextlib.ExitStack() as open_sockets:
            report, theirs = socket.socketpair()
            output, their_output = socket.socketpair()
            child = spawn(encode(self._order), [theirs.detach(), their_output.detach()])
            streams = [_Stream(report, self._report), _Stream(output, self._printed)]
            for stream in streams:
                open_sockets.callback(stream.close)
            await self._watch(child)
            child.signal(signal.SIGKILL)
            self._exit = await child.wait(_GRACE_SECONDS)
            for stream in streams:
                stream.read_rest()

    async def _watch(self, child: Child) -> None:
        """Return when there is a result, when the process is gone, or when its time is up."""
        born = asyncio.Event()

        def ended() -> None:
            born.set()
            self._settled.set()

        child.watch(born.set, ended)
        try:
            async with asyncio.timeout(_BIRTH_SECONDS):
                await born.wait()
        except TimeoutError:
            self.is_unborn = True
            return
        try:
            async with asyncio.timeout(self._order.seconds + _GRACE_SECONDS):
                await self._settled.wait()
        except TimeoutError:
            self._is_too_slow = True

    def _report(self, data: bytes) -> None:
        if self.result is not None or self._broken is not None:
            return
        try:
            for payload in self._frames.feed(data):
                self.result = decode_result(payload)
                self._dags = tuple(map(decode_dag, self.result.dags))
                self._settled.set()
                return
        except (ProtocolError, msgspec.DecodeError) as error:
            self.result, self._broken = None, str(error)
            self._settled.set()

    def _printed(self, data: bytes) -> None:
        self._output += data
        # What was printed last tells most about an end nobody expected.
        del self._output[:-_OUTPUT_KEPT]

    def imported(self) -> Imported:
        """The result, or the error that takes its place."""
        if self._output:
            log.debug(
                "%s printed while it was imported:\n%s", self._order.fileloc, self._output.decode(errors="replace")
            )
        if self.result is None:
            return Imported(error=self._sudden_end())
        for warning in self.result.warnings:
            log.warning("%s", warning)
        return Imported(
            dags=self._dags,
            error=self.result.error,
            dependencies=self.result.dependencies,
            seconds=self.result.seconds,
            misses_module=self.result.misses_module,
        )

    def _sudden_end(self) -> str:
        fileloc = self._order.fileloc
        if self._exit is not None and (self._exit.refused is not None or self._exit.status is None):
            raise ImportFailed(fileloc, self._exit.words)
        if self._is_too_slow or self._exit is None:
            reason = f"it took longer than {self._order.seconds:g} s to import"
        elif self._broken is not None:
            reason = f"the process that imported it sent something unreadable ({self._broken})"
        else:
            reason = f"the process that imported it {self._exit.words}"
        tail = self._output[-_OUTPUT_SHOWN:].decode(errors="replace").strip()
        return f"{ImportFailed(fileloc, reason)}" + (f"\nThe last it printed:\n{tail}" if tail else "")


class _Stream:
    """Our end of a socket that a child writes to, read as data arrives."""

    def __init__(self, source: socket.socket, take: Callable[[bytes], None]) -> None:
        source.setblocking(False)
        self._socket, self._take = source, take
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(source.fileno(), self._read)

    def read_rest(self) -> None:
        """Take what still lies in the socket; a process that escaped the child's group may hold it open for ever."""
        for _ in range(_MOST_CHUNKS):
            if not self._read():
                return

    def close(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def _read(self) -> bool:
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._socket.fileno())
            return False
        self._take(data)
        return True
