"""What triggers ask the engine: awaited, called plainly, called from threads; and the news they wait for."""

from collections.abc import Callable
from typing import Any

from stannel.model.trigger import CancelReason
from stannel.protocol.replies import ErrorResponse, VariableResult
from stannel.protocol.requests import GetVariable
from stannel.protocol.schema import ErrorCode
from stannel.protocol.triggering import Failed, Finished, Fired, News

HostOf = Callable[..., Any]
Code = Callable[..., None]

ASKS = """
    from stannel.protocol.requests import GetVariable
    from stannel.sdk import Variable
    from stannel.triggers.asking import ask, run_ended

    class Awaits(Plain):
        async def run(self):
            answer = await ask(GetVariable(self.kwargs["key"]))
            yield TriggerEvent(answer.value)

    class Calls(Plain):
        async def run(self):
            yield TriggerEvent(Variable.get(self.kwargs["key"]))

    class CallsInThread(Plain):
        async def run(self):
            yield TriggerEvent(await asyncio.to_thread(Variable.get, self.kwargs["key"]))

    class WaitsForRun(Plain):
        async def run(self):
            print("listening")
            yield TriggerEvent(await run_ended(["orders", "bills"], timeout=self.kwargs["timeout"]))
"""


def test_answers_reach_the_trigger_that_asked(host_of: HostOf, code: Code) -> None:
    code(ASKS)
    host = host_of()
    kinds = ["Awaits", "Calls", "CallsInThread", "Awaits", "Calls"]
    for number, kind in enumerate(kinds, 1):
        host.start(number, f"mine.{kind}", key=f"key {number}")
    for _ in kinds:
        ask, request = host.asked()
        assert request == GetVariable(f"key {ask.trigger_id}")
        host.answer(ask.id, VariableResult(key=request.key, value=f"value {ask.trigger_id}"))
    for number in range(1, len(kinds) + 1):
        assert host.of(Fired, number).event.payload == f"value {number}"


def test_answers_may_come_in_any_order(host_of: HostOf, code: Code) -> None:
    code(ASKS)
    host = host_of()
    host.start(1, "mine.Awaits", key="first")
    host.start(2, "mine.CallsInThread", key="second")
    asks = [host.asked(), host.asked()]
    for ask, request in reversed(asks):
        host.answer(ask.id, VariableResult(key=request.key, value=request.key))
    assert host.of(Fired, 1).event.payload == "first"
    assert host.of(Fired, 2).event.payload == "second"


def test_a_refusal_is_raised_in_the_trigger(host_of: HostOf, code: Code) -> None:
    code(ASKS)
    host = host_of()
    refusal = ErrorResponse(ErrorCode.PERMISSION_DENIED, {"message": "not for you"})
    for number, kind in ((1, "Awaits"), (2, "Calls"), (3, "CallsInThread")):
        host.start(number, f"mine.{kind}", key="x")
        ask, _ = host.asked()
        host.answer(ask.id, error=refusal)
        assert "not for you" in "\n".join(host.of(Failed, number).traceback)


def test_commands_that_arrive_during_a_plain_call_are_obeyed_afterwards(host_of: HostOf, code: Code) -> None:
    code(ASKS)
    host = host_of()
    host.start(1, "mine.Waits")
    host.line(1, "starting")
    host.start(2, "mine.Calls", key="x")
    ask, request = host.asked()
    host.cancel(1, CancelReason.MOVED)
    host.start(3, "mine.Waits")
    host.beats(2)
    assert host.about(1) == []
    host.answer(ask.id, VariableResult(key=request.key, value="late"))
    assert host.of(Fired, 2).event.payload == "late"
    host.of(Finished, 1)
    host.line(3, "starting")


def test_news_of_a_run_wake_those_who_wait_for_its_dag(host_of: HostOf, code: Code) -> None:
    code(ASKS)
    host = host_of()
    host.start(1, "mine.WaitsForRun", timeout=60)
    host.start(2, "mine.WaitsForRun", timeout=0.01)
    host.line(1, "listening")
    assert host.of(Fired, 2).event.payload is False
    host.say(News(["others"]))
    host.beats(1)
    assert host.about(1) == []
    host.say(News(["bills"]))
    assert host.of(Fired, 1).event.payload is True


def test_a_plain_call_that_waits_long_is_not_called_blocking(host_of: HostOf, code: Code) -> None:
    code(ASKS)
    host = host_of(blocked_warning=0.05)
    host.start(1, "mine.Calls", key="x")
    ask, request = host.asked()
    host.beats(3)
    host.answer(ask.id, VariableResult(key=request.key, value="late"))
    host.of(Finished, 1)
    assert not any("blocks the event loop" in line for line in host.lines(1))
