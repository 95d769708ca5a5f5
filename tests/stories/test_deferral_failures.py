"""A trigger that goes wrong, in whatever way, harms only its own task, whose log says what happened."""

from collections.abc import Iterator

import pytest
from stories.deferral import engine_with, hosts, open_gate, wait_for_log, xcom

from stannel.model.run import Run
from stannel.model.states import TaskState
from stannel.testing import Engine

BAD = """
    import asyncio, ctypes, os, sys, time
    from stannel.sdk import DAG, BaseOperator
    from stannel.triggers.base import BaseTrigger, TriggerEvent
    from gates import Gate

    class Bad(Gate):
        "Each subclass goes wrong as its name says."
        def __init__(self, name="go", **kwargs):
            super().__init__(name)

        def serialize(self):
            return f"{__name__}.{type(self).__name__}", {"name": self.name}

    class RaisesWhenMade(Bad):
        def __init__(self, name="go", again=False):
            super().__init__(name)
            if again:
                raise ValueError("not made")

        def serialize(self):
            return super().serialize()[0], {"again": True}

    class TakesOtherArguments(Bad):
        def __init__(self, name="go"): super().__init__(name)
        def serialize(self): return super().serialize()[0], {"nobody_takes_this": 1}

    class Missing(Bad):
        def serialize(self): return "nowhere.to_be.Found", {}

    class HasNoSuchClass(Bad):
        def serialize(self): return "gates.NoSuchClass", {}

    class IsNoTrigger(Bad):
        def serialize(self): return "collections.OrderedDict", {}

    class ExitsWhenImported(Bad):
        def serialize(self): return "exits.Any", {}

    class Raises(Bad):
        async def run(self):
            raise ValueError("broken wait")
            yield

    class Returns(Bad):
        async def run(self):
            return
            yield

    class ReturnsItsEvent(Bad):
        async def run(self):
            return TriggerEvent("lost")

    class YieldsNoEvent(Bad):
        async def run(self):
            yield {"status": "done"}

    class FiresWhatCannotBeStored(Bad):
        async def run(self):
            yield TriggerEvent(object())

    class FiresAReservedKey(Bad):
        async def run(self):
            yield TriggerEvent({"deep": [{"__classname__": "x"}]})

    class Exits(Bad):
        async def run(self):
            sys.exit("bye")
            yield

    class IsNoGenerator(Bad):
        def run(self): return 7

    class KillsItsProcess(Bad):
        async def run(self):
            os._exit(7)
            yield

    class RaisesAfterItsEvent(Bad):
        async def run(self):
            try:
                yield TriggerEvent("fired")
            finally:
                raise ValueError("too late to matter")

    class Leaks(Bad):
        async def run(self):
            self.left = asyncio.create_task(asyncio.sleep(3600), name="left-behind")
            yield TriggerEvent("fired")

    class CleansUpBadly(Bad):
        async def run(self):
            yield TriggerEvent("fired")
        async def cleanup(self):
            raise ValueError("unclean")

    class FiresTwice(Bad):
        async def run(self):
            yield TriggerEvent("first")
            yield TriggerEvent("second")

    class ForgetsSuper(BaseTrigger):
        def __init__(self, name="go"): pass
        def serialize(self): return f"{__name__}.ForgetsSuper", {}
        async def run(self): yield TriggerEvent("fired")

    class Blocks(Bad):
        async def run(self):
            path = os.path.join(os.environ["STORY_GATES"], self.task_instance.run_id, "unblock")
            while not os.path.exists(path):
                time.sleep(0.05)  # here
            yield TriggerEvent("at last")

    class HoldsTheInterpreter(Bad):
        async def run(self):
            path = os.path.join(os.environ["STORY_GATES"], self.task_instance.run_id, "unblock")
            while not os.path.exists(path):
                ctypes.PyDLL(None).sleep(4)  # no other thread of the process runs meanwhile
            yield TriggerEvent("at last")

    class Stays(Bad):
        async def run(self):
            self.log.info("in process %d", os.getpid())
            while True:
                try:
                    yield TriggerEvent(await self.opened())
                except asyncio.CancelledError:
                    self.log.info("I stay")

    class Grows(Bad):
        async def run(self):
            self.much = bytearray(os.urandom(1)) * (400 * 1024 * 1024)
            yield TriggerEvent(await self.opened())

    class Waits(BaseOperator):
        def execute(self, context):
            trigger = globals()[context["dag_run"].conf["kind"]] if self.task_id == "bad" else Gate
            self.defer(trigger=trigger("go"), method_name="end")

        def end(self, context, event): return event

    with DAG("bad", schedule=None):
        Waits(task_id="bad"), Waits(task_id="neighbour")
"""

# Each kind of trigger that fails its task, and words of the task's log.
FAILS = {
    "RaisesWhenMade": ("Trigger failed to inflate", "ValueError: not made"),
    "TakesOtherArguments": ("Trigger failed to inflate", "nobody_takes_this"),
    "Missing": ("Trigger failed to load code", "nowhere"),
    "HasNoSuchClass": ("Trigger failed to load code", "NoSuchClass"),
    "IsNoTrigger": ("Trigger failed", "OrderedDict"),
    "ExitsWhenImported": ("Trigger failed to load code", "SystemExit"),
    "Raises": ("exited with error", "ValueError: broken wait"),
    "Returns": ("Trigger exited without sending an event. Dependent tasks will be failed.", ""),
    "ReturnsItsEvent": ("Trigger returned a TriggerEvent rather than yielding it", ""),
    "YieldsNoEvent": ("no event", "dict"),
    "FiresWhatCannotBeStored": ("returned non-serializable result", "object"),
    "Exits": ("exited with error", "SystemExit"),
    "IsNoGenerator": ("Trigger", ""),
    "KillsItsProcess": ("ended the process that ran it", "status 7"),
}
# Those that fire although something is wrong with them: what they fire, and words of the log.
FIRES = {
    "RaisesAfterItsEvent": ("fired", "too late to matter"),
    "Leaks": ("fired", "left 1 of its tasks behind"),
    # A key that the encoding of values uses itself is an ordinary key to authors.
    "FiresAReservedKey": ({"deep": [{"__classname__": "x"}]}, "Trigger fired event"),
    "CleansUpBadly": ("fired", "cleanup() raised ValueError: unclean"),
    "FiresTwice": ("first", "Trigger fired event"),
    "ForgetsSuper": ("fired", "Trigger fired event"),
}


@pytest.fixture(scope="module", params=["sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    settings = {
        "STANNEL__TRIGGERER__BLOCKED_QUARANTINE_THRESHOLD": "1",
        "STANNEL__TRIGGERER__RUNNER_HEALTH_CHECK_THRESHOLD": "2",
        "STANNEL__TRIGGERER__HOST_MEMORY_LIMIT_MB": "300",
    }
    files = {"bad.py": BAD, "exits.py": "raise SystemExit('not today')"}
    with engine_with(request, tmp_path_factory.mktemp("bad"), files, settings) as engine:
        yield engine


def waiting(engine: Engine, kind: str) -> Run:
    return engine.trigger("bad", conf={"kind": kind})


def neighbour_goes_on(engine: Engine, run: Run) -> None:
    open_gate(engine, run, "go", "good")
    engine.wait_for_states(run, neighbour="success")
    assert xcom(engine, run, "neighbour") == "good"


@pytest.mark.parametrize("kind", FAILS)
def test_its_task_fails_and_its_log_says_why(engine: Engine, kind: str) -> None:
    run = waiting(engine, kind)
    engine.wait_for_states(run, bad="failed")
    log = engine.task_log(run, "bad")
    assert all(words in log for words in FAILS[kind]), log
    assert engine.tasks(run)["bad"].note
    neighbour_goes_on(engine, run)


@pytest.mark.parametrize("kind", FIRES)
def test_what_goes_wrong_after_the_event_is_only_told(engine: Engine, kind: str) -> None:
    run = waiting(engine, kind)
    engine.wait_for_states(run, bad="success")
    event, words = FIRES[kind]
    assert xcom(engine, run, "bad") == event
    wait_for_log(engine, run, "bad", words)
    neighbour_goes_on(engine, run)


def test_a_trigger_that_blocks_is_named_and_moved_and_the_others_go_on(engine: Engine) -> None:
    run = waiting(engine, "Blocks")
    line = next(number for number, text in enumerate(BAD.splitlines(), 1) if "# here" in text)
    told = wait_for_log(engine, run, "bad", "blocks the event loop")
    assert f"bad.py:{line}" in told["event"], told
    wait_for_log(engine, run, "bad", "moved to a process of its own")
    neighbour_goes_on(engine, run)
    assert engine.states(run)["bad"] == "deferred"
    open_gate(engine, run, "unblock")
    assert engine.wait_for_run(run).state == "success"
    assert xcom(engine, run, "bad") == "at last"


def test_a_trigger_that_holds_the_interpreter_is_found_and_moved(engine: Engine) -> None:
    run = waiting(engine, "HoldsTheInterpreter")
    wait_for_log(engine, run, "bad", "moved to a process of its own")
    neighbour_goes_on(engine, run)
    open_gate(engine, run, "unblock")
    assert engine.wait_for_run(run).state == "success"


def test_a_trigger_that_ignores_being_stopped_is_left_behind(engine: Engine) -> None:
    run = waiting(engine, "Stays")
    before = int(wait_for_log(engine, run, "bad", "in process")["event"].split()[-1])
    assert before in hosts(engine)
    instance = engine.tasks(run)["bad"]
    engine.store.tasks.set_state(run, [instance.pk], TaskState.FAILED, now=run.run_after)
    wait_for_log(engine, run, "bad", "ignores cancellation")
    neighbour_goes_on(engine, run)
    # Its process gets nothing new, and ends as soon as nobody else is in it.
    engine.wait_until(lambda: before not in hosts(engine), seconds=20, what="its process was kept")


def test_a_trigger_that_takes_too_much_memory_harms_only_itself(engine: Engine) -> None:
    run = waiting(engine, "Grows")
    engine.wait_for_states(run, bad="failed")
    wait_for_log(engine, run, "bad", "MiB of memory, but 300 are allowed")
    neighbour_goes_on(engine, run)
