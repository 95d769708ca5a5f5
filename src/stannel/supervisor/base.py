"""The base fork server: started from nothing, kept running, started again when it died."""

import os
import socket
import sys
from collections.abc import Mapping, Sequence

from stannel.supervisor.child import Child
from stannel.supervisor.control import Spawn
from stannel.supervisor.exits import Exit
from stannel.supervisor.forks import Connection
from stannel.supervisor.orphans import Orphans

_MOST_TRIES = 3


class BaseServer:
    """The server that all others and all their children descend from."""

    def __init__(self, orphans: Orphans, preload: Sequence[str], steps: Sequence[str], env: Mapping[str, str]) -> None:
        self._orphans = orphans
        self._preload, self._steps, self._env = preload, steps, env
        self._connection: Connection | None = None
        self.process: Child | None = None

    def connection(self) -> Connection:
        """The running server, or a new one: orders wait in its socket until it has imported everything."""
        if self._connection is None or not self._connection.is_open:
            self._start()
        assert self._connection is not None
        return self._connection

    async def close(self, patience: float) -> None:
        """Let the server end and every process under it, by force if it takes longer than `patience` seconds."""
        if self._connection is not None:
            self._connection.close()
        if self.process is not None:
            await self.process.wait(patience)

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            pid = _execute(theirs, self._preload, self._steps, self._env)
        self.process = Child(Spawn(0, "", b""), ())
        self.process.born(pid)
        self._orphans.adopt(self.process, pid)
        self._connection = Connection(ours, self._orphans, self._order_again)

    def _order_again(self, lost: list[Child]) -> None:
        for child in lost:
            if child.tries < _MOST_TRIES:
                self.connection().respawn(child)
            else:
                child.ended(Exit(refused="no process could be forked: the fork server ended each time it was started"))


def _execute(control: socket.socket, preload: Sequence[str], steps: Sequence[str], env: Mapping[str, str]) -> int:
    argv = [sys.executable, "-P", "-m", "stannel.supervisor", "3", ",".join(preload), ",".join(steps)]
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
        (os.POSIX_SPAWN_DUP2, control.fileno(), 3),
    ]
    return os.posix_spawn(sys.executable, argv, env, file_actions=actions, setsid=True)
