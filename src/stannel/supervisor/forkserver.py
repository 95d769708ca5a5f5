"""The program a task's process is forked from: one thread, everything imported, nothing else going on.

Run as `python -m stannel.supervisor FD MODULES STEPS`. It takes orders on the control socket, forks, reaps, and
tells. It ends when the socket does, and takes its children with it.
"""

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from stannel.supervisor.control import (
    LONGEST_TEXT,
    Exited,
    Notice,
    Refused,
    Spawn,
    Spawned,
    Stop,
    receive_order,
    send_notices,
)
from stannel.supervisor.forking import fork, note_fork_hooks, release_free_memory
from stannel.supervisor.groups import become_subreaper, children_of_this_process, signal_group

Target = Callable[[bytes, list[int]], object]

# Not SIGTERM: that one is for tasks, and must find its default the moment a child is forked.
_STOP = signal.SIGUSR1
_FAREWELL_SECONDS = 1.0
_NOTICES_PER_PACKET = 500
# The module under `signal`, without its detour through enums: every line run in a child copies memory.
_signal: Any = importlib.import_module("_signal")


class ForkServer:
    """Forks on order. The process must have a single thread; a fork copies no other.

    `adopts`: orphans among its descendants become its children, to be reaped as well.
    """

    def __init__(self, control: socket.socket, *, adopts: bool = False) -> None:
        self._control, self._control_fd = control, control.fileno()
        self._adopts = adopts
        self._children: dict[int, bool] = {}
        self._targets: dict[str, Target] = {}
        self._notices: list[Notice] = []
        self._stopping = False
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Serve until told to stop or the other side is gone; returns when no child is left."""
        _flush_output()
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _noticed)
        signal.signal(_STOP, self._stop)
        # What exists now lives as long as the server: no child shall touch its pages for a collection, nor copy holes.
        gc.disable()
        gc.collect()
        gc.freeze()
        release_free_memory()
        poll = select.poll()
        poll.register(self._control_fd, select.POLLIN)
        poll.register(self._wake_reader, select.POLLIN)
        try:
            while not self._stopping:
                ready = poll.poll(0 if self._notices else None)
                if not ready:
                    self._tell()
                elif ready[0][0] == self._control_fd:
                    # Orders come first, one after the other: what is done between two forks copies pages.
                    self._follow_order()
                else:
                    os.read(self._wake_reader, 512)
                    self._reap()
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            self._end_children()

    def _follow_order(self) -> None:
        order, fds = receive_order(self._control) or (Stop(), [])
        if isinstance(order, Stop):
            self._stopping = True
        else:
            self._spawn(order, fds)

    def _spawn(self, order: Spawn, fds: list[int]) -> None:
        try:
            target = self._target(order.target)
            pid = fork()
        except (OSError, ImportError, AttributeError) as error:
            self._notices.append(Refused(order.number, f"no process could be forked: {error}"))
        else:
            if pid == 0:
                self._become(target, order.args, fds)
            self._children[pid] = order.serves
            self._notices.append(Spawned(order.number, pid))
        for fd in fds:
            os.close(fd)

    def _become(self, target: Target, args: bytes, fds: list[int]) -> NoReturn:
        """Turn this fresh fork into what was ordered; it never comes back to the server's code."""
        code = 1
        try:
            os.setsid()
            _signal.set_wakeup_fd(-1)
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
            _signal.signal(_STOP, _signal.SIG_DFL)
            os.close(self._control_fd)
            os.close(self._wake_reader)
            os.close(self._wake_writer)
            gc.enable()
            target(args, fds)
            code = 0
        except BaseException:  # noqa: BLE001 - the last stop before _exit: whatever it was, it is told and the child ends
            traceback.print_exc()
        finally:
            os._exit(code)

    def _target(self, name: str) -> Target:
        target = self._targets.get(name)
        if target is None:
            target = self._targets[name] = resolve(name)
        return target

    def _reap(self) -> None:
        # WNOWAIT first: as long as the dead child is not reaped, nobody else can have its number or its group.
        while (self._children or self._adopts) and (found := _next_dead()) is not None:
            self._children.pop(found, None)
            try:  # noqa: SIM105 - with fewer calls between two forks, fewer pages are copied
                os.killpg(found, signal.SIGKILL)
            except OSError:
                pass
            pid, status, usage = os.wait4(found, 0)
            self._notices.append(Exited(pid, status, usage.ru_maxrss))

    def _tell(self) -> None:
        notices = self._notices
        for start in range(0, len(notices), _NOTICES_PER_PACKET):
            send_notices(self._control, notices[start : start + _NOTICES_PER_PACKET])
        notices.clear()

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _end_children(self) -> None:
        """Kill every child's group. A fork server among them is asked first, so that it can end its own children."""
        signal.signal(_STOP, signal.SIG_IGN)
        for pid in {*self._children, *children_of_this_process()}:
            signal_group(pid, _STOP if self._children.get(pid) else signal.SIGKILL)
        deadline = time.monotonic() + _FAREWELL_SECONDS
        while self._children and (left := deadline - time.monotonic()) > 0:
            self._reap()
            if self._children:
                select.select([self._wake_reader], [], [], left)
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_reader, 512)
        for pid in self._children:
            signal_group(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._tell()


def _flush_output() -> None:
    """What an import has printed shall not wait in a buffer that every fork inherits."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def resolve(name: str) -> Any:
    """The object that `package.module:attribute` names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def brief_traceback(error: BaseException) -> str:
    """The end of the traceback, which is the part that names the cause, short enough for a packet."""
    return "".join(traceback.format_exception(error))[-LONGEST_TEXT:]


def _noticed(*_: object) -> None:
    """SIGCHLD needs a handler of Python's for the wake-up descriptor to be written to."""


def _next_dead() -> int | None:
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid


def _close_above(descriptor: int) -> None:
    # Only those that are open: the limit may be a billion, and closing as many numbers takes minutes.
    for name in os.listdir("/proc/self/fd"):
        if int(name) > descriptor:
            with contextlib.suppress(OSError):
                os.close(int(name))


def main(argv: Sequence[str]) -> None:
    """Serve on the control socket `argv[0]`, with the modules `argv[1]` imported and the functions `argv[2]` called."""
    descriptor, modules, steps = argv
    # Descriptors that the supervising process was given without being asked are no business of any task.
    _close_above(int(descriptor))
    control = socket.socket(fileno=int(descriptor))
    control.set_inheritable(False)
    adopts = become_subreaper()
    note_fork_hooks()
    gc.disable()
    for module in filter(None, modules.split(",")):
        importlib.import_module(module)
    for step in filter(None, steps.split(",")):
        resolve(step)()
    ForkServer(control, adopts=adopts).serve()
