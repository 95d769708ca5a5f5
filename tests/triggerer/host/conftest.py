"""A real host over a real socket: the test is its triggerer."""

import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from msgspec import Raw

from stannel.model.trigger import CancelReason
from stannel.protocol.decoding import NIL, decode_request
from stannel.protocol.frames import Frames
from stannel.protocol.triggering import (
    Alive,
    Answer,
    Ask,
    CancelTriggers,
    Command,
    Drain,
    Failed,
    Finished,
    Fired,
    HostSetup,
    Logged,
    LogRecord,
    Report,
    StartTriggers,
    TriggerStart,
    Waiter,
    decode_report,
    frame,
)
from stannel.sdk import serde

R = TypeVar("R")
PATIENCE = 20.0

PREAMBLE = """
import asyncio
import sys
import time
from stannel.triggers.base import (
    BaseEventTrigger, BaseTrigger, TaskFailedEvent, TaskSkippedEvent, TaskSuccessEvent, TriggerEvent,
)


class Plain(BaseTrigger):
    def __init__(self, **kwargs):
        super().__init__()
        self.kwargs = kwargs

    def serialize(self):
        return f"{type(self).__module__}.{type(self).__qualname__}", self.kwargs


class Waits(Plain):
    async def run(self):
        await asyncio.Event().wait()
        yield TriggerEvent(None)


"""


class HostUnderTest:
    """Says commands, and waits for reports; everything that came is kept."""

    def __init__(self, dags_folder: Path, **limits: Any) -> None:
        self.folder = dags_folder
        self.seen: list[Report] = []
        self._frames = Frames()
        self._sock, theirs = socket.socketpair()
        self.slot = os.memfd_create("slot")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stannel.triggerer.host", str(theirs.fileno()), str(self.slot)],
            pass_fds=[theirs.fileno(), self.slot],
        )
        theirs.close()
        given = {"blocked_warning": 0.2, "on_kill_timeout": 5.0, "cancel_grace": 5.0, **limits}
        self.say(HostSetup(dags_folder=str(dags_folder), **given))

    def say(self, command: Command) -> None:
        self._sock.settimeout(PATIENCE)
        self._sock.sendall(frame(command))

    def start(self, trigger_id: int, classpath: str, /, waiter: bool = True, epoch: int = 1, **kwargs: Any) -> None:
        self.say(StartTriggers([self.order(trigger_id, classpath, waiter=waiter, epoch=epoch, kwargs=kwargs)]))

    @staticmethod
    def order(
        trigger_id: int, classpath: str, *, waiter: bool = True, epoch: int = 1, kwargs: Any = None, **more: Any
    ) -> TriggerStart:
        who = Waiter(f"ti-{trigger_id}", "dag", "run", "task", -1, 1) if waiter else None
        return TriggerStart(trigger_id, epoch, classpath, serde.encode(kwargs or {}), who, **more)

    def cancel(self, trigger_id: int, reason: CancelReason) -> None:
        self.say(CancelTriggers([(trigger_id, reason)]))

    def answer(self, number: int, body: Any = None, error: Any = None) -> None:
        pack = msgspec.msgpack.encode
        self.say(Answer(number, NIL if body is None else Raw(pack(body)), NIL if error is None else Raw(pack(error))))

    def until(self, wanted: Callable[[Report], R | None], what: str = "a report") -> R:
        """The first thing `wanted` finds in what came, or comes within the patience of a test."""
        at = 0
        deadline = time.monotonic() + PATIENCE
        while True:
            for report in self.seen[at:]:
                at += 1
                found = wanted(report)
                if found is not None:
                    return found
            assert time.monotonic() < deadline, f"{what} did not come; there were {self.told()}"
            self._read(deadline)

    def _read(self, deadline: float) -> None:
        self._sock.settimeout(max(0.01, deadline - time.monotonic()))
        data = self._sock.recv(1024 * 1024)
        assert data, f"the host has ended; there were {self.told()}"
        self.seen.extend(map(decode_report, self._frames.feed(data)))

    def told(self) -> list[Report]:
        """Everything but heartbeats."""
        return [report for report in self.seen if not isinstance(report, Alive)]

    def of(self, kind: type[R], trigger_id: int) -> R:
        """The first report of this kind about this trigger."""

        def matches(report: Report) -> R | None:
            named = getattr(report, "id", getattr(report, "trigger_id", None))
            return report if isinstance(report, kind) and named == trigger_id else None

        return self.until(matches, f"{kind.__name__} of {trigger_id}")

    def any(self, kind: type[R]) -> R:
        return self.until(lambda report: report if isinstance(report, kind) else None, kind.__name__)

    def asked(self) -> tuple[Ask, Any]:
        """The oldest question that was not looked at yet."""
        ask = self.any(Ask)
        self.seen.remove(ask)
        return ask, decode_request(ask.body)

    def line(self, trigger_id: int | None, text: str) -> LogRecord:
        """A line of this trigger's log that holds the text."""

        def matches(report: Report) -> LogRecord | None:
            records = report.records if isinstance(report, Logged) else []
            return next((each for each in records if each.trigger_id == trigger_id and text in each.event), None)

        return self.until(matches, f"the line {text!r} of {trigger_id}")

    def lines(self, trigger_id: int | None) -> list[str]:
        records = [record for report in self.seen if isinstance(report, Logged) for record in report.records]
        return [record.event for record in records if record.trigger_id == trigger_id]

    def about(self, trigger_id: int) -> list[Report]:
        kinds = (Fired, Failed, Finished)
        return [report for report in self.seen if isinstance(report, kinds) and report.id == trigger_id]

    def beats(self, count: int = 1) -> None:
        """Wait for this many further turns of its clock."""
        before = sum(isinstance(report, Alive) for report in self.seen)
        left = [before + count]

        def counted(report: Report) -> bool | None:
            left[0] -= isinstance(report, Alive)
            return True if left[0] <= 0 else None

        self.until(counted, "a heartbeat")

    def hang_up(self) -> int:
        self._sock.close()
        return self.process.wait(PATIENCE)

    def drain(self) -> int:
        """Tell it to stop; all it says until its end is kept."""
        self.say(Drain())
        self._sock.settimeout(PATIENCE)
        while data := self._sock.recv(1024 * 1024):
            self.seen.extend(map(decode_report, self._frames.feed(data)))
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        self._sock.close()
        os.close(self.slot)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)


@pytest.fixture
def dags(tmp_path: Path) -> Path:
    folder = tmp_path / "dags"
    folder.mkdir()
    return folder


@pytest.fixture
def host_of(dags: Path) -> Iterator[Callable[..., HostUnderTest]]:
    """Starts hosts with the limits a test wants."""
    made: list[HostUnderTest] = []

    def make(**limits: Any) -> HostUnderTest:
        made.append(HostUnderTest(dags, **limits))
        return made[-1]

    yield make
    for host in made:
        host.close()


@pytest.fixture
def code(dags: Path) -> Callable[..., None]:
    """Writes a module of triggers into the DAG folder."""

    def write(text: str, name: str = "mine") -> None:
        (dags / f"{name}.py").write_text(PREAMBLE + textwrap.dedent(text))

    return write
