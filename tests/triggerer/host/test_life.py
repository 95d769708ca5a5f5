"""The life of one trigger, through the socket: what it fires, how it fails, how it is stopped."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from stannel.model.states import TaskState
from stannel.model.trigger import CancelReason
from stannel.protocol.triggering import Failed, Finished, Fired, StartTriggers, Stuck
from stannel.sdk import serde

HostOf = Callable[..., Any]
Code = Callable[..., None]


def test_an_event_is_sent_with_its_payload_and_the_trigger_ends(host_of: HostOf, code: Code) -> None:
    code("""
        class Fires(Plain):
            async def run(self):
                yield TriggerEvent({"moment": self.kwargs["moment"], "who": self.task_instance.task_id})
                raise RuntimeError("nobody asked for more")
    """)
    host = host_of()
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    host.start(7, "mine.Fires", epoch=3, moment=moment)
    fired = host.of(Fired, 7)
    assert fired.epoch == 3
    assert serde.decode(fired.event.payload) == {"moment": moment, "who": "task"}
    assert host.of(Finished, 7).epoch == 3
    assert [type(report) for report in host.about(7)] == [Fired, Finished]
    assert any("trigger dag/run/task/-1/1 (ID 7) starting" in line for line in host.lines(7))
    assert any("Trigger fired event" in line for line in host.lines(7))


@pytest.mark.parametrize(
    ("expression", "state"),
    [
        ("TaskSuccessEvent(xcoms={'a': (1, 2)})", TaskState.SUCCESS),
        ("TaskFailedEvent(xcoms={'a': (1, 2)})", TaskState.FAILED),
        ("TaskSkippedEvent(xcoms={'a': (1, 2)})", TaskState.SKIPPED),
    ],
)
def test_an_end_event_carries_the_state_and_its_xcoms(
    host_of: HostOf, code: Code, expression: str, state: TaskState
) -> None:
    code(f"""
        class Ends(Plain):
            async def run(self):
                yield {expression}
    """)
    host = host_of()
    host.start(1, "mine.Ends")
    event = host.of(Fired, 1).event
    assert event.ends is state
    assert serde.decode(event.xcoms) == {"a": (1, 2)}


def test_a_trigger_without_a_waiting_task_goes_on_after_its_first_event(host_of: HostOf, code: Code) -> None:
    code("""
        class Counts(Plain):
            async def run(self):
                for number in range(3):
                    yield TriggerEvent(number)
                raise RuntimeError("after its events")
    """)
    host = host_of()
    host.start(1, "mine.Counts", waiter=False)
    host.of(Finished, 1)
    assert [report.event.payload for report in host.about(1)[:-2]] == [0, 1, 2]
    assert [type(report) for report in host.about(1)] == [Fired, Fired, Fired, Failed, Finished]
    assert any("trigger ID 1 starting" in line for line in host.lines(1))
    assert any("exited with error RuntimeError: after its events" in line for line in host.lines(1))


FAILURES = {
    "nowhere": ("", "no.such.module.Trigger", "failed to load code", "no module 'no'"),
    "no_class": ("x = 1", "mine.x", "failed to load code", "no class"),
    "import_raises": ("raise ValueError('at import')", "mine.Any", "failed to load code", "at import"),
    "import_exits": ("sys.exit(3)", "mine.Any", "failed to load code", "SystemExit"),
    "unknown_argument": (
        """
        class Bad(Waits):
            def __init__(self):
                pass
        """,
        "mine.Bad",
        "failed to inflate",
        "unexpected keyword argument 'given'",
    ),
    "constructor_raises": (
        """
        class Bad(Waits):
            def __init__(self, given):
                raise LookupError("in the constructor")
        """,
        "mine.Bad",
        "failed to inflate",
        "LookupError: in the constructor",
    ),
    "constructor_exits": (
        """
        class Bad(Waits):
            def __init__(self, given):
                raise SystemExit(4)
        """,
        "mine.Bad",
        "failed to inflate",
        "SystemExit",
    ),
    "abstract": ("class Bad(Plain): pass", "mine.Bad", "failed to inflate", "abstract"),
    "run_raises": (
        """
        class Bad(Plain):
            async def run(self):
                raise ValueError("in run")
                yield
        """,
        "mine.Bad",
        "exited with error ValueError: in run",
        "mine.py",
    ),
    "run_exits": (
        """
        class Bad(Plain):
            async def run(self):
                sys.exit(5)
                yield
        """,
        "mine.Bad",
        "exited with error SystemExit: 5",
        "sys.exit(5)",
    ),
    "run_cancels_itself": (
        """
        class Bad(Plain):
            async def run(self):
                raise asyncio.CancelledError
                yield
        """,
        "mine.Bad",
        "exited with error CancelledError",
        "CancelledError",
    ),
    "error_without_text": (
        """
        class Shy(Exception):
            def __str__(self):
                raise RuntimeError("no text")

        class Bad(Plain):
            async def run(self):
                raise Shy
                yield
        """,
        "mine.Bad",
        "exited with error Shy",
        "Shy",
    ),
    "no_generator": (
        """
        class Bad(Plain):
            def run(self):
                return 7
        """,
        "mine.Bad",
        "exited with error NotAnEvent",
        "it gave a int",
    ),
    "returns_the_event": (
        """
        class Bad(Plain):
            async def run(self):
                return TriggerEvent(1)
        """,
        "mine.Bad",
        "exited with error NotAnEvent",
        "Trigger returned a TriggerEvent rather than yielding it",
    ),
    "yields_something_else": (
        """
        class Bad(Plain):
            async def run(self):
                yield {"payload": 1}
        """,
        "mine.Bad",
        "no event",
        "yielded a dict",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_trigger_that_does_wrong_fails_alone_and_its_log_says_why(host_of: HostOf, code: Code, name: str) -> None:
    text, classpath, logged, traced = FAILURES[name]
    code(text)
    code("class Good(Waits): pass", name="good")
    host = host_of()
    host.start(1, "good.Good")
    host.start(2, classpath, given=1)
    failed = host.of(Failed, 2)
    assert failed.error == "Trigger failure"
    assert traced in "\n".join(failed.traceback)
    host.of(Finished, 2)
    assert traced in host.line(2, logged).fields["exception"]
    host.beats(2)
    assert host.about(1) == []


def test_returning_without_an_event_is_a_failure_without_a_traceback(host_of: HostOf, code: Code) -> None:
    code("""
        class Quiet(Plain):
            async def run(self):
                if self.kwargs:
                    yield TriggerEvent(None)

        class NoGenerator(Plain):
            async def run(self):
                pass
    """)
    host = host_of()
    for number, kind in ((1, "Quiet"), (2, "NoGenerator")):
        host.start(number, f"mine.{kind}")
        assert host.of(Failed, number) == Failed(number, 1, "Trigger failure", None)
        assert host.line(number, "Trigger exited without sending an event. Dependent tasks will be failed.")


@pytest.mark.parametrize(
    "payload",
    ["object()", "'\\ud800'", "{'a': [lambda: 1]}", "Nasty()"],
)
def test_a_payload_that_cannot_be_stored_fails_its_trigger(host_of: HostOf, code: Code, payload: str) -> None:
    code(f"""
        class Nasty(dict):
            def items(self):
                raise RuntimeError("never look inside")

        class Bad(Plain):
            async def run(self):
                yield TriggerEvent({payload})
    """)
    host = host_of()
    host.start(1, "mine.Bad")
    failed = host.of(Failed, 1)
    assert failed.error.startswith("Could not resume the task: the event payload could not be serialized (")
    assert host.line(1, "returned non-serializable result")


def test_xcoms_with_keys_that_are_no_texts_fail_the_trigger(host_of: HostOf, code: Code) -> None:
    code("""
        class Bad(Plain):
            async def run(self):
                yield TaskSuccessEvent(xcoms={1: 2})
    """)
    host = host_of()
    host.start(1, "mine.Bad")
    assert "keys are texts" in host.of(Failed, 1).error


def test_secret_arguments_reach_the_constructor_without_their_prefix(host_of: HostOf, code: Code) -> None:
    code("""
        class Fires(Plain):
            async def run(self):
                yield TriggerEvent(sorted(self.kwargs))
    """)
    host = host_of()
    host.start(1, "mine.Fires", encrypted__password="x", plain=1)
    assert host.of(Fired, 1).event.payload == ["password", "plain"]


# --- stopping --------------------------------------------------------------------------------------------------------

HOOKS = """
    class Hooked(Plain):
        async def run(self):
            print("running")
            try:
                await asyncio.Event().wait()
            finally:
                print("run is over")
            yield

        async def on_kill(self):
            await asyncio.sleep(0.01)
            print("on_kill")

        async def cleanup(self):
            await asyncio.sleep(0.01)
            print("cleanup")
"""


@pytest.mark.parametrize("reason", list(CancelReason))
def test_only_a_kill_runs_on_kill_and_every_stop_cleans_up(host_of: HostOf, code: Code, reason: CancelReason) -> None:
    code(HOOKS)
    host = host_of()
    host.start(1, "mine.Hooked")
    host.line(1, "running")
    host.cancel(1, reason)
    host.of(Finished, 1)
    hooks = ["on_kill", "cleanup"] if reason is CancelReason.KILLED else ["cleanup"]
    printed = [line for line in host.lines(1) if line in ("run is over", "on_kill", "cleanup")]
    assert printed == ["run is over", *hooks]
    assert [type(report) for report in host.about(1)] == [Finished]
    assert any("Trigger cancelled" in line for line in host.lines(1))


def test_a_kill_said_again_does_not_interrupt_on_kill(host_of: HostOf, code: Code) -> None:
    code("""
        class Slow(Waits):
            async def on_kill(self):
                print("killing")
                async with asyncio.timeout(10):
                    await asyncio.sleep(0.6)
                print("killed")
    """)
    host = host_of()
    host.start(1, "mine.Slow")
    host.line(1, "starting")
    host.cancel(1, CancelReason.KILLED)
    host.line(1, "killing")
    for reason in (CancelReason.KILLED, CancelReason.MOVED, CancelReason.SHUTDOWN):
        host.cancel(1, reason)
    host.of(Finished, 1)
    assert [line for line in host.lines(1) if line in ("killing", "killed")] == ["killing", "killed"]


def test_on_kill_ends_with_its_time_and_its_errors_are_told(host_of: HostOf, code: Code) -> None:
    code("""
        class Endless(Waits):
            async def on_kill(self):
                await asyncio.Event().wait()

            async def cleanup(self):
                print("cleanup")

        class Raises(Waits):
            async def on_kill(self):
                raise OSError("no connection")

            async def cleanup(self):
                raise OSError("nothing to clean")
    """)
    host = host_of(on_kill_timeout=0.1)
    host.start(1, "mine.Endless")
    host.start(2, "mine.Raises")
    host.line(2, "starting")
    host.cancel(1, CancelReason.KILLED)
    host.cancel(2, CancelReason.KILLED)
    host.of(Finished, 1)
    host.of(Finished, 2)
    assert host.line(1, "on_kill() timed out")
    assert host.line(1, "cleanup")
    assert host.line(2, "on_kill() raised OSError: no connection").level == "warning"
    assert host.line(2, "cleanup() raised OSError: nothing to clean")


def test_only_kill_makes_the_trigger_and_runs_its_hooks_but_not_its_run(host_of: HostOf, code: Code) -> None:
    code(HOOKS)
    host = host_of()
    host.say(StartTriggers([host.order(1, "mine.Hooked", only_kill=True)]))
    host.of(Finished, 1)
    assert [line for line in host.lines(1) if line in ("running", "on_kill", "cleanup")] == ["on_kill", "cleanup"]


def test_a_kill_that_overtakes_the_start_still_runs_on_kill(host_of: HostOf, code: Code) -> None:
    code(HOOKS)
    host = host_of()
    host.start(1, "mine.Hooked")
    host.cancel(1, CancelReason.KILLED)
    host.start(2, "mine.Hooked")
    host.cancel(2, CancelReason.MOVED)
    host.of(Finished, 1)
    host.of(Finished, 2)
    assert [line for line in host.lines(1) if line in ("on_kill", "cleanup")] == ["on_kill", "cleanup"]
    assert "on_kill" not in host.lines(2)


def test_a_trigger_that_ignores_cancellation_is_named_and_its_later_events_are_dropped(
    host_of: HostOf, code: Code, dags: Any
) -> None:
    code("""
        from pathlib import Path

        class Deaf(Plain):
            async def run(self):
                while not Path(self.kwargs["until"]).exists():
                    try:
                        await asyncio.sleep(0.01)
                    except asyncio.CancelledError:
                        print("not now")
                yield TriggerEvent("too late")

            async def on_kill(self):
                print("on_kill")
    """)
    host = host_of(cancel_grace=0.1)
    host.start(1, "mine.Deaf", until=str(dags / "flag"))
    host.line(1, "starting")
    host.cancel(1, CancelReason.KILLED)
    assert host.of(Stuck, 1)
    assert host.line(1, "ignores cancellation")
    assert host.line(1, "on_kill")
    (dags / "flag").touch()
    host.of(Finished, 1)
    assert [type(report) for report in host.about(1)] == [Finished]
    assert host.lines(1).count("on_kill") == 1
    assert host.lines(1).count("not now") == 1


def test_a_fired_trigger_that_does_not_end_is_interrupted(host_of: HostOf, code: Code) -> None:
    code("""
        class Lingers(Plain):
            async def run(self):
                try:
                    yield TriggerEvent(1)
                finally:
                    await asyncio.Event().wait()
    """)
    host = host_of(cancel_grace=0.1)
    host.start(1, "mine.Lingers")
    host.of(Fired, 1)
    host.of(Finished, 1)
    assert [type(report) for report in host.about(1)] == [Fired, Finished]


def test_tasks_left_behind_are_cancelled_and_named(host_of: HostOf, code: Code) -> None:
    code("""
        async def forgotten():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                print("forgotten no more")
                raise

        class Leaks(Plain):
            async def run(self):
                self.task = asyncio.create_task(forgotten())
                await asyncio.sleep(0)
                yield TriggerEvent(1)

        class Tidy(Plain):
            async def run(self):
                task = asyncio.create_task(forgotten())
                await asyncio.sleep(0)
                task.cancel()
                yield TriggerEvent(1)
    """)
    host = host_of()
    host.start(1, "mine.Leaks")
    host.start(2, "mine.Tidy")
    host.of(Finished, 1)
    host.of(Finished, 2)
    assert host.line(1, "left 1 of its tasks behind").event.endswith("forgotten")
    assert host.line(1, "forgotten no more")
    assert not any("behind" in line for line in host.lines(2))


def test_a_child_task_that_exits_ends_nobody_else(host_of: HostOf, code: Code) -> None:
    code("""
        async def exits():
            sys.exit(1)

        class Bad(Plain):
            async def run(self):
                try:
                    await asyncio.create_task(exits())
                except Exception as error:
                    yield TriggerEvent(type(error).__name__)

        class Worse(Waits):
            async def run(self):
                asyncio.get_running_loop().call_soon(sys.exit, 2)
                await asyncio.sleep(0.01)
                yield TriggerEvent("alive")
    """)
    host = host_of()
    host.start(1, "mine.Bad")
    assert host.of(Fired, 1).event.payload == "TriggerExit"
    host.start(2, "mine.Worse")
    assert host.of(Fired, 2).event.payload == "alive"


def test_a_time_limit_inside_cleanup_works_after_a_cancel(host_of: HostOf, code: Code) -> None:
    code("""
        class Limits(Waits):
            async def run(self):
                try:
                    await asyncio.Event().wait()
                finally:
                    try:
                        async with asyncio.timeout(0.01):
                            await asyncio.Event().wait()
                    except TimeoutError:
                        print("limited")
                yield
    """)
    host = host_of()
    host.start(1, "mine.Limits")
    host.line(1, "starting")
    host.cancel(1, CancelReason.MOVED)
    host.of(Finished, 1)
    assert "limited" in host.lines(1)
