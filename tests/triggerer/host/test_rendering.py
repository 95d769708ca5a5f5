"""A trigger that starts a task gets its templates rendered, without the task's DAG file."""

from collections.abc import Callable
from typing import Any

import msgspec
from support.memory_channel import startup

from stannel.protocol.replies import VariableResult
from stannel.protocol.triggering import Failed, Fired, StartTriggers

HostOf = Callable[..., Any]
Code = Callable[..., None]

TEMPLATED = """
    class Templated(Plain):
        def __init__(self, path, other=None):
            super().__init__(path=path)
            self.path, self.other = path, other

        async def run(self):
            yield TriggerEvent([self.path, self.other, self.task_instance.task_id])
"""


def ordered(host: Any, **kwargs: Any) -> StartTriggers:
    greeting = msgspec.msgpack.encode(startup("my_dag", "my_task", conf={"colour": "red"}))
    return StartTriggers([host.order(1, "mine.Templated", kwargs=kwargs, startup=greeting)])


def test_arguments_are_rendered_in_the_context_of_the_task(host_of: HostOf, code: Code) -> None:
    code(TEMPLATED)
    host = host_of()
    other = ["{{ dag_run.conf['colour'] }}", {"deep": "{{ ti.task_id }} {{ params.colour }}"}, 7]
    host.say(ordered(host, path="/data/{{ ds }}/x", other=other))
    payload = host.of(Fired, 1).event.payload
    assert payload == ["/data/2026-11-15/x", ["red", {"deep": "my_task red"}, 7], "my_task"]


def test_a_template_may_ask_the_engine(host_of: HostOf, code: Code) -> None:
    code(TEMPLATED)
    host = host_of()
    host.say(ordered(host, path="{{ var.value.place }}"))
    ask, request = host.asked()
    assert ask.trigger_id == 1
    host.answer(ask.id, VariableResult(key=request.key, value="here"))
    assert host.of(Fired, 1).event.payload[0] == "here"


def test_a_template_that_cannot_be_rendered_fails_the_trigger(host_of: HostOf, code: Code) -> None:
    code(TEMPLATED)
    host = host_of()
    host.say(ordered(host, path="{{ nobody_knows }}"))
    assert "nobody_knows" in "\n".join(host.of(Failed, 1).traceback)
    assert host.line(1, "failed to inflate")


def test_without_a_greeting_nothing_is_rendered(host_of: HostOf, code: Code) -> None:
    code(TEMPLATED)
    host = host_of()
    host.start(1, "mine.Templated", path="{{ ds }}")
    assert host.of(Fired, 1).event.payload[0] == "{{ ds }}"
