"""Every line is in the log of the trigger that wrote it, and too many lines are counted."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stannel.protocol.triggering import Finished
from stannel.triggerer.host.loglines import LONGEST_LINE, clean

HostOf = Callable[..., Any]
Code = Callable[..., None]

WRITES = """
    import logging
    import warnings

    own = logging.getLogger("somebody.else")

    def in_thread():
        own.info("from a thread")

    async def in_task():
        own.info("from a task")

    class Writes(Plain):
        async def run(self):
            self.log.info("from self.log %s", "with values")
            own.error("from a logger")
            print("printed", 1, end=" ")
            print("on one line")
            print("complained", file=sys.stderr)
            warnings.warn(f"warned {self.trigger_id}")
            await asyncio.to_thread(in_thread)
            await asyncio.create_task(in_task())
            try:
                1 / 0
            except ZeroDivisionError:
                own.exception("with a traceback")
            own.debug("not at this level")
            print("unfinished", end="")
            yield TriggerEvent(None)
"""


def test_lines_belong_to_the_trigger_whose_code_wrote_them(host_of: HostOf, code: Code) -> None:
    code(WRITES)
    host = host_of()
    for number in (1, 2):
        host.start(number, "mine.Writes")
    for number in (1, 2):
        host.of(Finished, number)
        written = [line for line in host.lines(number) if not line.lower().startswith("trigger")]
        assert written[:4] == ["from self.log with values", "from a logger", "printed 1 on one line", "complained"]
        assert "warned" in written[4]
        assert written[5:] == ["from a thread", "from a task", "with a traceback", "unfinished"]
    assert host.line(1, "complained").level == "error"
    assert host.line(1, "printed").logger == "task.stdout"
    assert "ZeroDivisionError" in host.line(1, "with a traceback").fields["exception"]


def test_the_level_that_was_set_up_holds(host_of: HostOf, code: Code) -> None:
    code(WRITES)
    host = host_of(log_level="ERROR")
    host.start(1, "mine.Writes")
    host.of(Finished, 1)
    assert "from a logger" in host.lines(1)
    assert "from self.log with values" not in host.lines(1)
    assert not any("starting" in line for line in host.lines(1))


def test_a_task_that_nobody_awaited_is_told_to_its_trigger(host_of: HostOf, code: Code) -> None:
    code("""
        import gc

        async def fails():
            raise LookupError("unheard")

        class Forgets(Plain):
            async def run(self):
                asyncio.create_task(fails())
                await asyncio.sleep(0.01)
                gc.collect()
                yield TriggerEvent(None)
    """)
    host = host_of()
    host.start(1, "mine.Forgets")
    assert "unheard" in host.line(1, "never retrieved").fields["exception"]


def test_lines_that_nobody_takes_are_dropped_and_counted(host_of: HostOf, code: Code, tmp_path: Path) -> None:
    code("""
        class Chatters(Plain):
            async def run(self):
                for number in range(self.kwargs["count"]):
                    print(f"line {number} " + "x" * 1000)
                with open(self.kwargs["pipe"], "w") as pipe:
                    pipe.write("written")
                yield TriggerEvent(1)
    """)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    host = host_of(blocked_warning=30.0)
    host.start(1, "mine.Chatters", count=20_000, pipe=str(pipe))
    assert pipe.read_text() == "written"
    host.of(Finished, 1)
    missing = int(host.line(1, "lines are missing here").event.split()[0])
    assert 0 < missing < 20_000
    assert sum(line.startswith("line ") for line in host.lines(1)) + missing == 20_000


def test_text_that_cannot_be_sent_is_made_so():
    assert clean("a\ud800b") == "a?b"
    assert clean("é") == "é"
    assert len(clean("x" * (LONGEST_LINE * 2))) < LONGEST_LINE + 100
