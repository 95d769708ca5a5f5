"""Renders the templates of a trigger that starts a task: no worker has seen that task yet."""

from collections.abc import Iterable
from typing import Any

from msgspec import Raw

from stannel.protocol.decoding import decode_reply
from stannel.protocol.replies import StartupDetails
from stannel.runner.context import context_for
from stannel.runner.task_instance import RuntimeTaskInstance
from stannel.triggers.base import BaseTrigger


class AbsentDag:
    """What is known of a DAG whose file is not loaded."""

    def __init__(self, dag_id: str) -> None:
        self.dag_id = dag_id
        self.params: dict[str, Any] = {}


class AbsentTask:
    """What is known of a task whose DAG file is not loaded."""

    map_index_template = None
    is_mapped = False
    inlets: tuple[Any, ...] = ()
    outlets: tuple[Any, ...] = ()

    def __init__(self, startup: StartupDetails) -> None:
        self.task_id, self.dag = startup.ti.task_id, AbsentDag(startup.ti.dag_id)
        self.params: dict[str, Any] = {}

    def has_dag(self) -> bool:
        return False


def render(trigger: BaseTrigger, arguments: Iterable[str], startup: bytes) -> None:
    """Introduce the task, and render those of the trigger's arguments that hold templates."""
    greeting = decode_reply(Raw(startup))
    assert isinstance(greeting, StartupDetails)
    task = AbsentTask(greeting)
    ti = RuntimeTaskInstance(greeting, task)
    trigger.task_instance = ti
    if not trigger.template_fields:
        trigger.template_fields = tuple(name for name in arguments if hasattr(trigger, name))
    trigger.render_template_fields(context_for(greeting, task, ti))
