"""Keeps programs running in the foreground: signals, and what the screen says meanwhile."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import click

from stannel.cli.engine import Engine
from stannel.cli.news import News
from stannel.store.signals import readable
from stannel.store.store import Store

_LOOK_SECONDS = 0.5
# The news are looked at this often even when nothing calls for it.
_NET_SECONDS = 10.0
_READY_SECONDS = 15.0
_FOR_EVER = 1e9


class Signals:
    """Counts SIGINT and SIGTERM, and wakes whoever waits for them."""

    def __init__(self) -> None:
        self.count = 0
        self.last: int | None = None
        self._ours, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def fileno(self) -> int:
        return self._ours.fileno()

    def wait(self, seconds: float) -> bool:
        """True: a signal came."""
        if not readable(self._ours.fileno(), seconds=seconds):
            return False
        self._ours.recv(64)
        return True

    def _note(self, number: int, _: FrameType | None) -> None:
        self.count, self.last = self.count + 1, number
        self._theirs.send(b"!")


def wait_until_ready(engine: Engine, store: Store, signals: Signals) -> list[str]:
    """Wait for every program's sign of life; the names of those that gave none in time."""
    wait_until(lambda: not _missing(engine, store), signals)
    return _missing(engine, store)


def wait_until(look: Callable[[], bool], signals: Signals) -> bool:
    """False: the time was up, or a signal came."""
    deadline = time.monotonic() + _READY_SECONDS
    while not look():
        if time.monotonic() > deadline or signals.wait(0.01):
            return False
    return True


def _missing(engine: Engine, store: Store) -> list[str]:
    pids = {"scheduler": os.getpid(), "worker": getattr(engine.executor, "pid", None)}
    if engine.triggerer is not None:
        pids["triggerer"] = os.getpid()
    leases = store.leases.all()
    missing = [
        kind
        for kind, pid in pids.items()
        if not any(lease.kind == kind and pid in (None, lease.pid) for lease in leases)
    ]
    if engine.parser is not None and not engine.parser.ready.is_set():
        missing.append("parser")
    return missing


def serve(engine: Engine, store: Store, signals: Signals, news: News, tell: Callable[[str], None]) -> None:
    """Tell what happens until a signal comes."""
    restarts = 0
    listener = store.listen("scheduler")
    told_dead: set[str] = set()
    try:
        while True:
            # Many changes in a short time make one look.
            if signals.wait(_LOOK_SECONDS):
                return
            if signals.fileno() in readable(listener.fileno(), signals.fileno(), seconds=_NET_SECONDS):
                return
            listener.drain()
            for line in news.look_again():
                tell(line)
            lost = getattr(engine.executor, "restarts", 0)
            if lost > restarts:
                tell("the worker process was lost and another one started; the log file says why")
                restarts = lost
            for name in set(engine.dead) - told_dead:
                tell(f"the {name} ended unexpectedly; the log file says why")
                told_dead.add(name)
    finally:
        listener.close()


def stop(engine: Engine, signals: Signals, tell: Callable[[str], None], *, grace: float) -> None:
    """Stop cleanly; a second signal stops running tasks at once, a third ends this process as it is."""
    # A person can press Ctrl-C again; a service manager cannot, and has less patience.
    patience = _FOR_EVER if signals.last == signal.SIGINT else grace
    stopping = threading.Thread(target=engine.stop, kwargs={"patience": patience}, daemon=True)
    before = signals.count
    running = engine.executor.running
    stopping.start()
    if running:
        tasks = "1 running task" if running == 1 else f"{running} running tasks"
        tell(f"waiting for {tasks}; press Ctrl-C again to stop {'it' if running == 1 else 'them'} now")
    while stopping.is_alive():
        stopping.join(0.05)
        if signals.count >= before + 2:
            os._exit(1)
        if signals.count == before + 1 and running >= 0:
            running = -1
            tell("stopping the running tasks")
            threading.Thread(target=engine.stop_now, daemon=True).start()


def process_age() -> float:
    """Seconds since this process was started, interpreter and imports included."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.process_time()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def tell_on_screen(text: str) -> None:
    """A line with the time, at once."""
    click.echo(f"{time.strftime('%H:%M:%S')} {text}")
