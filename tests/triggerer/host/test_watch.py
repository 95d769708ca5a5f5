"""Code that blocks the loop is named while it does, by file, line and trigger."""

import os
import struct
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stannel.protocol.triggering import Blocking, Fired
from stannel.triggerer.host.watch import place_of

HostOf = Callable[..., Any]
Code = Callable[..., None]

BLOCKS = """
    from pathlib import Path

    def waits_for(path):
        while not Path(path).exists():
            time.sleep(0.01)  # here

    class Blocks(Plain):
        async def run(self):
            print("before")
            waits_for(self.kwargs["path"])
            yield TriggerEvent("after")

    class BlocksInTask(Plain):
        async def run(self):
            await asyncio.create_task(self.work())
            yield TriggerEvent("after")

        async def work(self):
            waits_for(self.kwargs["path"])

    class BlocksInCallback(Plain):
        async def run(self):
            done = asyncio.Event()
            asyncio.get_running_loop().call_soon(waits_for, self.kwargs["path"])
            asyncio.get_running_loop().call_soon(done.set)
            await done.wait()
            yield TriggerEvent("after")

    class BlocksInConstructor(Plain):
        def __init__(self, path):
            super().__init__(path=path)
            waits_for(path)

        async def run(self):
            yield TriggerEvent("after")
"""


@pytest.mark.parametrize("kind", ["Blocks", "BlocksInTask", "BlocksInCallback", "BlocksInConstructor"])
def test_blocking_code_is_named_while_it_blocks(host_of: HostOf, code: Code, dags: Path, kind: str) -> None:
    code(BLOCKS)
    host = host_of(blocked_warning=0.05)
    host.start(1, "mine.Waits")
    host.line(1, "starting")
    flag = dags / "flag"
    host.start(7, f"mine.{kind}", path=str(flag))
    blocking = host.of(Blocking, 7)
    lines = (dags / "mine.py").read_text().splitlines()
    assert (blocking.file, blocking.function) == (str(dags / "mine.py"), "waits_for")
    assert blocking.line in {number for number, text in enumerate(lines, 1) if "exists" in text or "# here" in text}
    assert any("waits_for" in line for line in blocking.stack)
    assert not any("triggerer/host" in line for line in blocking.stack)
    assert "mine.py" in host.line(7, "blocks the event loop").event
    flag.touch()
    assert host.of(Fired, 7).event.payload == "after"
    host.line(7, "The event loop goes on")
    assert host.about(1) == []


def test_blocking_is_told_again_while_it_lasts_and_earlier_lines_are_not_held_back(
    host_of: HostOf, code: Code, dags: Path
) -> None:
    code(BLOCKS)
    host = host_of(blocked_warning=0.05)
    host.start(7, "mine.Blocks", path=str(dags / "flag"))
    first = host.of(Blocking, 7)
    assert "before" in host.lines(7)
    host.seen.remove(first)
    assert host.of(Blocking, 7).seconds > first.seconds
    (dags / "flag").touch()
    host.of(Fired, 7)
    assert sum("blocks the event loop" in line for line in host.lines(7)) == 1


def test_the_step_under_way_can_be_read_from_outside(host_of: HostOf, code: Code, dags: Path) -> None:
    code(BLOCKS)
    host = host_of(blocked_warning=0.05)
    host.start(7, "mine.Blocks", path=str(dags / "flag"))
    host.of(Blocking, 7)
    assert struct.unpack("<q", os.pread(host.slot, 8, 0)) == (7,)
    (dags / "flag").touch()
    host.of(Fired, 7)
    host.beats(1)
    assert struct.unpack("<q", os.pread(host.slot, 8, 0)) == (0,)


def test_a_busy_loop_that_turns_is_not_called_blocked(host_of: HostOf, code: Code) -> None:
    code("""
        class Busy(Plain):
            async def run(self):
                end = time.monotonic() + 1.2
                while time.monotonic() < end:
                    await asyncio.sleep(0)
                yield TriggerEvent("after")
    """)
    host = host_of(blocked_warning=0.5)
    host.start(1, "mine.Busy")
    host.of(Fired, 1)
    assert not any(isinstance(report, Blocking) for report in host.seen)


def test_the_place_is_the_authors_line_and_not_the_librarys() -> None:
    author: dict[str, Any] = {"__name__": "author"}
    library: dict[str, Any] = {"__name__": "library", "sys": sys}
    exec(compile("def call(f):\n    return f()\n", "/dags/author.py", "exec"), author)
    exec(compile("def look():\n    return sys._getframe()\n", "/venv/lib/site-packages/lib.py", "exec"), library)
    frame: types.FrameType = author["call"](library["look"])
    place = place_of(frame)
    assert (place.file, place.line, place.function) == ("/dags/author.py", 2, "call")
    alone: types.FrameType = library["look"]()
    assert place_of(alone).file != "/venv/lib/site-packages/lib.py"
