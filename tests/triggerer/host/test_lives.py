"""Many triggers in one host: starting, moving, draining, and the end of the triggerer."""

import signal
from collections.abc import Callable
from typing import Any

from stannel.model.trigger import CancelReason
from stannel.protocol.triggering import Alive, Failed, Finished, Fired, StartTriggers

HostOf = Callable[..., Any]
Code = Callable[..., None]

MANY = 5_000


def test_five_thousand_triggers_start_and_fire(host_of: HostOf, code: Code) -> None:
    code("""
        gate = asyncio.Event()

        class Gated(Plain):
            async def run(self):
                await gate.wait()
                yield TriggerEvent(self.kwargs["number"])

        class Opens(Plain):
            async def run(self):
                gate.set()
                yield TriggerEvent("open")
    """)
    host = host_of()
    orders = [host.order(number, "mine.Gated", kwargs={"number": number}) for number in range(1, MANY + 1)]
    for at in range(0, MANY, 500):
        host.say(StartTriggers(orders[at : at + 500]))
    host.until(lambda report: True if isinstance(report, Alive) and report.running == MANY else None)
    host.start(MANY + 1, "mine.Opens")
    host.until(_counts(Finished, MANY + 1))
    fired = {report.id: report.event.payload for report in host.seen if isinstance(report, Fired)}
    assert fired == {**{number: number for number in range(1, MANY + 1)}, MANY + 1: "open"}
    assert not any(isinstance(report, Failed) for report in host.seen)


def _counts(kind: type, count: int) -> Callable[[Any], bool | None]:
    left = [count]

    def counted(report: Any) -> bool | None:
        left[0] -= isinstance(report, kind)
        return True if left[0] == 0 else None

    return counted


def test_the_same_trigger_twice_runs_once(host_of: HostOf, code: Code) -> None:
    code("")
    host = host_of()
    host.start(1, "mine.Waits")
    host.start(1, "mine.Waits")
    host.line(1, "insertion attempted twice")
    host.beats(1)
    assert sum("starting" in line for line in host.lines(1)) == 1


def test_a_trigger_handed_out_anew_begins_when_its_earlier_run_is_gone(host_of: HostOf, code: Code) -> None:
    code("""
        class Slow(Plain):
            async def run(self):
                print("begins")
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0.05)
                    print("ends")
                yield
    """)
    host = host_of()
    host.start(1, "mine.Slow", epoch=1)
    host.line(1, "begins")
    host.start(1, "mine.Slow", epoch=2)
    assert host.of(Finished, 1).epoch == 1
    host.until(_counts_lines(1, "begins", 2))
    assert [line for line in host.lines(1) if line in ("begins", "ends")] == ["begins", "ends", "begins"]
    host.cancel(1, CancelReason.MOVED)
    host.until(lambda report: True if report == Finished(1, 2) else None)


def _counts_lines(trigger_id: int, text: str, count: int) -> Callable[[Any], bool | None]:
    left = [count]

    def counted(report: Any) -> bool | None:
        for record in getattr(report, "records", ()):
            left[0] -= record.trigger_id == trigger_id and text in record.event
        return True if left[0] <= 0 else None

    return counted


def test_cancels_of_triggers_that_are_gone_are_no_trouble(host_of: HostOf, code: Code) -> None:
    code("")
    host = host_of()
    host.cancel(99, CancelReason.KILLED)
    host.start(1, "mine.Waits")
    host.line(1, "starting")


def test_drain_stops_all_without_on_kill_and_says_everything_before_the_end(host_of: HostOf, code: Code) -> None:
    code("""
        class Hooked(Waits):
            async def on_kill(self):
                print("on_kill")

            async def cleanup(self):
                print("cleanup")
    """)
    host = host_of()
    for number in range(1, 21):
        host.start(number, "mine.Hooked")
    host.line(20, "starting")
    assert host.drain() == 0
    for number in range(1, 21):
        assert [type(report) for report in host.about(number)] == [Finished]
        assert "cleanup" in host.lines(number)
        assert "on_kill" not in host.lines(number)


def test_drain_lets_a_kill_that_is_under_way_have_its_time(host_of: HostOf, code: Code) -> None:
    code("""
        class Slow(Waits):
            async def on_kill(self):
                print("killing")
                await asyncio.sleep(0.5)
                print("killed")
    """)
    host = host_of(cancel_grace=0.05)
    host.start(1, "mine.Slow")
    host.line(1, "starting")
    host.cancel(1, CancelReason.KILLED)
    host.line(1, "killing")
    assert host.drain() == 0
    assert "killed" in host.lines(1)
    assert host.about(1) == [Finished(1, 1)]


def test_drain_does_not_wait_for_the_deaf_nor_for_threads(host_of: HostOf, code: Code) -> None:
    code("""
        import threading

        class Deaf(Plain):
            async def run(self):
                threading.Thread(target=threading.Event().wait).start()
                while True:
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        pass
                yield
    """)
    host = host_of(cancel_grace=0.1)
    host.start(1, "mine.Deaf")
    host.line(1, "starting")
    assert host.drain() == 0


def test_the_host_ends_when_nobody_is_left_to_talk_to(host_of: HostOf, code: Code) -> None:
    code("""
        class Deaf(Plain):
            async def run(self):
                while True:
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        pass
                yield
    """)
    host = host_of()
    host.start(1, "mine.Deaf")
    host.line(1, "starting")
    assert host.hang_up() == 0


def test_signals_do_not_end_the_host(host_of: HostOf, code: Code) -> None:
    code("""
        class Asks(Plain):
            async def run(self):
                program = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
                child = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
                out, _ = await child.communicate()
                yield TriggerEvent(out.decode().strip())
    """)
    host = host_of()
    host.start(1, "mine.Waits")
    host.line(1, "starting")
    host.process.send_signal(signal.SIGTERM)
    host.process.send_signal(signal.SIGINT)
    host.start(2, "mine.Asks")
    assert host.of(Fired, 2).event.payload == "True"
    assert host.about(1) == []


def test_the_heartbeat_says_how_many_run_and_how_large_it_is(host_of: HostOf, code: Code) -> None:
    code("")
    host = host_of()
    for number in (1, 2, 3):
        host.start(number, "mine.Waits")
    alive = host.until(lambda report: report if isinstance(report, Alive) and report.running == 3 else None)
    assert 5_000_000 < alive.memory < 500_000_000
    later = host.until(lambda report: report if isinstance(report, Alive) and report.turns > alive.turns else None)
    assert later.running == 3
