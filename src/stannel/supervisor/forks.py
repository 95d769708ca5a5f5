"""The supervising process's view of its fork servers: spawn a child, hear of its end, whoever is there to tell.

A child belongs to the server that forked it. When that server dies, the child lives on: its sockets are ours, and
the kernel makes us (or the base server) its parent, so its end is still heard. A spawn that the dead server may or
may not have carried out is settled by looking who holds the child's socket.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from itertools import count

from stannel.supervisor.child import Child
from stannel.supervisor.control import (
    DependsOn,
    Exited,
    Notice,
    Ready,
    Refused,
    Spawn,
    Spawned,
    Stop,
    receive_notices,
    send_order,
)
from stannel.supervisor.exits import Exit
from stannel.supervisor.groups import holder_of
from stannel.supervisor.orphans import Orphans


class Connection:
    """The control socket of one running fork server. `on_gone` receives the spawns that were never carried out."""

    def __init__(self, control: socket.socket, orphans: Orphans, on_gone: Callable[[list[Child]], None]) -> None:
        control.setblocking(False)
        self.is_open = True
        self.ready: asyncio.Future[Ready | None] = asyncio.get_running_loop().create_future()
        self.dependencies: list[str] = []
        self._control = control
        self._orphans = orphans
        self._on_gone = on_gone
        self._numbers = count()
        self._unborn: dict[int, Child] = {}
        self._alive: dict[int, Child] = {}
        self._unsent: list[Child] = []
        self._is_retired = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(control.fileno(), self._hear)

    @property
    def is_idle(self) -> bool:
        return not (self._unborn or self._alive)

    def spawn(self, target: str, args: bytes, fds: Sequence[int], *, serves: bool = False) -> Child:
        """Order a child; `fds` are handed over and closed here once it has them."""
        child = Child(Spawn(0, target, args, serves), fds)
        self.respawn(child)
        return child

    def respawn(self, child: Child) -> None:
        """Order a child that an earlier server could not make."""
        number = next(self._numbers)
        child.tries += 1
        child.spawn = Spawn(number, child.spawn.target, child.spawn.args, child.spawn.serves)
        self._unborn[number] = child
        if self._unsent or not self._send(child):
            self._unsent.append(child)
            self._loop.add_writer(self._control.fileno(), self._send_rest)

    def retire(self) -> None:
        """Let the server end as soon as its last child has."""
        self._is_retired = True
        self._stop_if_idle()

    def close(self) -> None:
        """Let the server end, and every child it still has with it; their ends are still heard."""
        if self.is_open:
            self._on_gone = _forget
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)

    def _stop_if_idle(self) -> None:
        if self._is_retired and self.is_idle and self.is_open:
            # When the order does not fit, the queue is full of others, and the next one that ends comes by here again.
            with contextlib.suppress(OSError):
                send_order(self._control, Stop())

    def _send(self, child: Child) -> bool:
        try:
            send_order(self._control, child.spawn, child.fds)
        except (BlockingIOError, OSError):
            # A full queue empties; a dead server is noticed by the reader, which settles what was never carried out.
            return False
        return True

    def _send_rest(self) -> None:
        while self._unsent:
            if not self._send(self._unsent[0]):
                return
            del self._unsent[0]
        self._loop.remove_writer(self._control.fileno())

    def _hear(self) -> None:
        try:
            notices = receive_notices(self._control)
        except BlockingIOError:
            return
        except ConnectionResetError:
            notices = None
        if notices is None:
            self._gone()
            return
        for notice in notices:
            self._take(notice)
        if self._is_retired:
            self._stop_if_idle()

    def _take(self, notice: Notice) -> None:
        match notice:
            case Spawned(number, pid):
                self._alive[pid] = child = self._unborn.pop(number)
                child.born(pid)
            case Exited(pid, status, max_rss):
                if (ended := self._alive.pop(pid, None)) is None:
                    self._orphans.heard(notice)
                else:
                    ended.ended(Exit(status=status, max_rss_kib=max_rss))
            case Refused(number, reason):
                self._unborn.pop(number).ended(Exit(refused=reason))
            case DependsOn(paths):
                self.dependencies += paths
            case Ready():
                # Who waited for it may have lost patience.
                if not self.ready.done():
                    self.ready.set_result(notice)

    def _gone(self) -> None:
        self.is_open = False
        self._loop.remove_reader(self._control.fileno())
        self._loop.remove_writer(self._control.fileno())
        self._control.close()
        alive, self._alive = self._alive, {}
        unborn, self._unborn = list(self._unborn.values()), {}
        for pid, child in alive.items():
            self._orphans.adopt(child, pid)
        lost = [child for child in unborn if not self._was_born(child)]
        if not self.ready.done():
            self.ready.set_result(None)
        self._on_gone(lost)

    def _was_born(self, child: Child) -> bool:
        pid = holder_of(os.fstat(child.fds[0]).st_ino) if child.fds else None
        if pid is None:
            return False
        child.born(pid)
        self._orphans.adopt(child, pid)
        return True


def _forget(lost: list[Child]) -> None:
    for child in lost:
        child.ended(Exit(refused="no process was started: the engine stops"))
