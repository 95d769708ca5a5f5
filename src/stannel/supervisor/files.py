"""Keeps a fork server ready for each DAG file in use, and starts attempts from it.

A server is good for one version of a file: the file and everything it imported from the DAG folder. An edit retires it,
and the next attempt gets a new one.
"""

import asyncio
import os
import socket
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import monotonic

import msgspec

from stannel.model.run import Attempt
from stannel.supervisor.base import BaseServer
from stannel.supervisor.child import Child
from stannel.supervisor.environment import without_engine_secrets
from stannel.supervisor.exits import Exit
from stannel.supervisor.fileserver import ServeFile
from stannel.supervisor.forks import Connection
from stannel.supervisor.groups import become_subreaper
from stannel.supervisor.launch import CannotStart, Process, Wires, wire_pairs
from stannel.supervisor.orphans import Orphans

RUN_ATTEMPT = "stannel.runner.main:run"
LOAD_FILE = "stannel.runner.main:load"
REHEARSE = "stannel.runner.rehearsal:rehearse"
PRELOAD = ("stannel.supervisor.fileserver", "stannel.runner.main")
_SERVE_FILE = "stannel.supervisor.fileserver:serve"

# An import may have failed because of something outside the DAG folder, so it is tried again now and then.
_FAILURE_HOLDS_SECONDS = 5.0
# Attempts come in bursts; within one, the files are not looked at again for every attempt.
_FRESH_SECONDS = 0.02
_GRACE_SECONDS = 1.0
_MOST_TRIES = 3
_FAREWELL_SECONDS = 3.0

Signature = tuple[int, int, int] | None


class ForkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How fork servers are made. `setup` and `rehearsal` are `module:function`, called once `preload` is imported."""

    dags_folder: Path
    capacity: int = 8
    import_timeout: float = 30.0
    preload: tuple[str, ...] = PRELOAD
    setup: str = ""
    rehearsal: str = REHEARSE
    environ: Mapping[str, str] | None = None
    target: str = RUN_ATTEMPT
    loader: str = LOAD_FILE


class FileServer:
    """One version of one DAG file: being loaded, loaded, or known not to load."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.process: Child | None = None
        self.own: Connection | None = None
        self.connection: Connection | None = None
        self.loading: asyncio.Task[Connection] | None = None
        self._seen = {path: _signature(path)}
        self._checked_at = monotonic()
        self._failed_at: float | None = None

    def depends_on(self, paths: list[str]) -> None:
        self._seen.update({path: _signature(path) for path in paths if path != self.path})

    def failed(self) -> None:
        self._failed_at = monotonic()

    def is_current(self) -> bool:
        """False: the file has changed, its server is gone, or a failed import is due for another try."""
        now = monotonic()
        if self._failed_at is not None and now - self._failed_at > _FAILURE_HOLDS_SECONDS:
            return False
        if self.connection is not None and not self.connection.is_open:
            return False
        if now - self._checked_at < _FRESH_SECONDS:
            return True
        self._checked_at = now
        return all(_signature(path) == seen for path, seen in self._seen.items())

    def retire(self) -> None:
        """Let the server end once nothing it forked is left. While it loads, those who wait for it come first."""
        if self.loading is not None and not self.loading.done():
            self.loading.add_done_callback(lambda _: asyncio.get_running_loop().call_later(_GRACE_SECONDS, self.retire))
        elif self.own is not None:
            self.own.retire()


class ForkLaunch:
    """Starts Python attempts by forking them from the server of their DAG file. Belongs to one running event loop."""

    def __init__(self, settings: ForkSettings) -> None:
        become_subreaper()
        env = without_engine_secrets(os.environ if settings.environ is None else settings.environ)
        self._settings = settings
        self._folder = str(settings.dags_folder)
        self._orphans = Orphans()
        steps = [step for step in (settings.setup, settings.rehearsal) if step]
        self._base = BaseServer(self._orphans, settings.preload, steps, env)
        self._files: OrderedDict[str, FileServer] = OrderedDict()
        self._respawning: set[asyncio.Task[None]] = set()

    async def start(self, attempt: Attempt) -> tuple[Process, Wires]:
        """Fork a process for the attempt, with its DAG file loaded."""
        path = attempt.fileloc
        server = await self._server_for(path)
        wires, fds = wire_pairs()
        args = msgspec.msgpack.encode((path, self._folder))
        return server.spawn(self._settings.target, args, fds), wires

    def warm_up(self) -> None:
        """Start the base server now, so that the first attempt does not wait for it."""
        self._base.connection()

    @property
    def base_pid(self) -> int | None:
        return self._base.process.pid if self._base.process else None

    @property
    def file_servers(self) -> dict[str, int | None]:
        """The pids of the file servers in use, by path."""
        return {path: server.process.pid for path, server in self._files.items() if server.process}

    async def close(self) -> None:
        """End all servers, and every process they forked."""
        for task in (*self._respawning, *(server.loading for server in self._files.values())):
            if task is not None:
                task.cancel()
        for server in self._files.values():
            if server.own is not None:
                server.own.close()
        self._files.clear()
        await self._base.close(_FAREWELL_SECONDS)

    async def _server_for(self, path: str) -> Connection:
        server = self._files.get(path)
        if server is None or not server.is_current():
            if server is not None:
                server.retire()
            server = self._files[path] = FileServer(path)
        self._files.move_to_end(path)
        if server.connection is not None:
            return server.connection
        if server.loading is None:
            server.loading = asyncio.create_task(self._load(server))
            self._make_room()
        return await asyncio.shield(server.loading)

    def _make_room(self) -> None:
        while len(self._files) > self._settings.capacity:
            _, oldest = self._files.popitem(last=False)
            oldest.retire()

    async def _load(self, server: FileServer) -> Connection:
        """The connection that attempts of this file are to be forked from."""
        for _ in range(_MOST_TRIES):
            connection, process = self._order_file_server(server)
            try:
                async with asyncio.timeout(self._settings.import_timeout):
                    ready = await connection.ready
            except TimeoutError:
                connection.close()
                await process.wait(0)
                raise self._failed(server, f"its import took longer than {self._settings.import_timeout:g} s") from None
            if ready is not None:
                break
            end = await process.wait(_FAREWELL_SECONDS)
            # The import itself may have ended the process; a kill from outside deserves another try.
            if end is None or end.refused or not end.is_killed:
                raise self._failed(server, f"the process that imported it {end.words if end else 'hangs'}")
        else:
            raise self._failed(server, "the process that imported it was killed every time")
        if ready.error is not None:
            raise self._failed(server, ready.error, ready.traceback)
        server.depends_on(connection.dependencies)
        # A fork of a process with several threads may deadlock: attempts then import the file themselves.
        server.connection = connection if ready.threads == 1 else self._base.connection()
        return server.connection

    def _order_file_server(self, server: FileServer) -> tuple[Connection, Child]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        order = ServeFile(self._settings.loader, server.path, self._folder, self._settings.rehearsal)
        process = self._base.connection().spawn(
            _SERVE_FILE, msgspec.msgpack.encode(order), [theirs.detach()], serves=True
        )
        server.process = process
        server.own = Connection(ours, self._orphans, partial(self._order_again, server.path))
        return server.own, process

    def _failed(self, server: FileServer, reason: str, detail: str | None = None) -> CannotStart:
        server.failed()
        return CannotStart(f"the DAG file {server.path} could not be imported: {reason}", detail)

    def _order_again(self, path: str, lost: list[Child]) -> None:
        for child in lost:
            task = asyncio.create_task(self._respawn(path, child))
            self._respawning.add(task)
            task.add_done_callback(self._respawning.discard)

    async def _respawn(self, path: str, child: Child) -> None:
        try:
            server = await self._server_for(path)
        except CannotStart as error:
            child.ended(Exit(refused=error.reason))
            return
        if child.tries < _MOST_TRIES:
            server.respawn(child)
        else:
            child.ended(Exit(refused="no process could be forked: the fork server of its DAG file ended each time"))


def _signature(path: str) -> Signature:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
