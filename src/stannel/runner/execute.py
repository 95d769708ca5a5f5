"""One attempt in the task process: find the task, give it its arguments, run it, say how it ended."""

import copy
import importlib
import inspect
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import GeneratorType
from typing import Any

from stannel.errors import NotSerializable
from stannel.model.ids import UNMAPPED
from stannel.protocol.replies import StartupDetails
from stannel.protocol.requests import (
    DeleteXCom,
    RescheduleTask,
    RetryTask,
    SetRenderedFields,
    SucceedTask,
    TaskState,
    Terminal,
)
from stannel.runner.assets import check_activity, drained, outlet_fields
from stannel.runner.callbacks import run_callbacks
from stannel.runner.channel import SupervisorGone
from stannel.runner.context import context_for
from stannel.runner.deadline import Deadline
from stannel.runner.deferral import defer_task, resumption, used_before
from stannel.runner.task_instance import RuntimeTaskInstance
from stannel.runner.tracebacks import user_frames
from stannel.sdk import comms
from stannel.sdk.comms import Channel
from stannel.sdk.context import Context, use_context
from stannel.sdk.dags import DAG
from stannel.sdk.deferral import load_triggers_of
from stannel.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTerminated,
    AirflowTaskTimeout,
    DownstreamTasksSkipped,
    TaskDeferred,
)
from stannel.sdk.log import TASK_LOGGER
from stannel.sdk.operator import template_engine
from stannel.sdk.operators.bash import BashOperator, shells
from stannel.sdk.references import XCOM_RETURN_KEY, resolved
from stannel.sdk.sensors.bash import BashSensor
from stannel.sdk.template_marks import needs_rendering, task_needs_rendering
from stannel.sdk.timezone import as_moment
from stannel.sdk.xcom import XCom

_log = logging.getLogger(TASK_LOGGER)
_LONGEST_FIELD = 4096
_LONGEST_REASON = 500
_NEVER_RETRIED = (AirflowFailException, AirflowSensorTimeout, AirflowTaskTerminated)


def execute(startup: StartupDetails, dags: Mapping[str, DAG], channel: Channel) -> Terminal:
    """Run the attempt and give the message that ends it. Only a lost supervisor is raised."""
    task = _find(startup, dags)
    if task is None:
        # Not "removed": the engine knows the task, so the file here differs from the one it read, and nothing was done.
        return _give_up(startup)
    deadline = Deadline(channel, task.execution_timeout, used_before(startup))
    with comms.use_channel(deadline.channel):
        ti = RuntimeTaskInstance(startup, task)
        context = context_for(startup, task, ti)
        with use_context(context):
            outcome = _outcome(startup, context, deadline)
            _run_outcome_callbacks(outcome, context)
    return outcome


def _give_up(startup: StartupDetails) -> Terminal:
    if startup.ti_context.should_retry:
        return RetryTask(end_date=_now(), retry_reason="the task is not in its DAG file")
    return TaskState(state="failed", end_date=_now())


def preload(dags: Mapping[str, DAG]) -> None:
    """Load what the tasks of these DAGs will need, so that processes forked from here share it."""
    if any(task_needs_rendering(task) for dag in dags.values() for task in dag.tasks):
        template_engine()
    if any(_is_async(task) for dag in dags.values() for task in dag.tasks):
        _event_loops()
    if any(_is_mapped_bash(task) for dag in dags.values() for task in dag.tasks):
        shells()
    load_triggers_of(task for dag in dags.values() for task in dag.tasks)


def execute_callback(
    startup: StartupDetails, dags: Mapping[str, DAG], channel: Channel, callback: Mapping[str, Any]
) -> None:
    """Run the callbacks of a task (`scope` "task") or of its DAG ("dag") without running the task.

    Its `kind` is success, failure, retry, skipped or execute; its `reason` is what the engine knows of the end.
    A DAG or task that is gone has no callbacks: that is logged.
    """
    kind, scope, reason = callback["kind"], callback["scope"], callback.get("reason")
    task = _find(startup, dags)
    dag = dags.get(startup.ti.dag_id)
    owner = task if scope == "task" else dag
    if owner is None or dag is None:
        _log.warning("The %s callback of %s cannot run: it is no longer in its file", kind, startup.ti.dag_id)
        return
    with comms.use_channel(channel):
        some_task = task or next(iter(dag.tasks), None)
        context = context_for(startup, some_task, RuntimeTaskInstance(startup, some_task))
        context["dag"] = dag
        context["reason"] = reason
        if reason is not None:
            context["exception"] = AirflowException(reason)
        with use_context(context):
            run_callbacks(owner, kind, context)


def _find(startup: StartupDetails, dags: Mapping[str, DAG]) -> Any:
    dag = dags.get(startup.ti.dag_id)
    task = dag.task_dict.get(startup.ti.task_id) if dag is not None else None
    if task is None:
        what = "DAG" if dag is None else f"task {startup.ti.task_id!r} of DAG"
        _log.error("The %s %r is no longer in %s", what, startup.ti.dag_id, startup.dag_rel_path)
    return task


def _outcome(startup: StartupDetails, context: Context, deadline: Deadline) -> Terminal:
    ti = context["ti"]
    try:
        with deadline:
            _forget_earlier_attempts(startup)
            task = prepare(context)
            if task.inlets or task.outlets:
                check_activity(task, ti.id)
            run_callbacks(task, "execute", context)
            result = _run(task, context, _work_of(task, startup, deadline))
            _push_result(task, ti, result)
            outlets = outlet_fields(context) if task.outlets else {}
        label = _map_index_label(context)
        return SucceedTask(end_date=_ended(ti, "success"), rendered_map_index=label, **outlets)
    except SupervisorGone:
        raise
    except TaskDeferred as error:
        return _deferred(error, context)
    except AirflowRescheduleException as error:
        moment = as_moment(error.reschedule_date)
        _log.info("The task will be started again at %s", moment.isoformat(timespec="seconds"))
        return RescheduleTask(reschedule_date=moment, end_date=_ended(ti, "up_for_reschedule"))
    except AirflowSkipException as error:
        if isinstance(error.__cause__, AirflowTaskTimeout):
            _stop(context["task"])
        _log.info("The task is skipped: %s", error)
        context["exception"] = error
        return TaskState(state="skipped", end_date=_ended(ti, "skipped"), rendered_map_index=_map_index_label(context))
    # SystemExit, KeyboardInterrupt and the timeout are no Exceptions, but they end the attempt all the same.
    except BaseException as error:  # noqa: BLE001
        return _failed(error, context)


def _deferred(error: TaskDeferred, context: Context) -> Terminal:
    try:
        message = defer_task(error, context["task"], _map_index_label(context))
    # What an author's serialize() raises, or what cannot travel, is a failure of the task like any other.
    except Exception as wrong:  # noqa: BLE001
        return _failed(wrong, context)
    _ended(context["ti"], "deferred")
    return message


def _failed(error: BaseException, context: Context) -> Terminal:
    ti = context["ti"]
    context["exception"] = error
    if isinstance(error, AirflowTaskTerminated | AirflowTaskTimeout):
        _stop(context["task"])
    _log.error("The task failed: %s", _in_words(error), exc_info=user_frames(error))
    final = isinstance(error, _NEVER_RETRIED) or not ti.should_retry
    label = _map_index_label(context)
    if final:
        return TaskState(state="failed", end_date=_ended(ti, "failed"), rendered_map_index=label)
    reason = _in_words(error)[:_LONGEST_REASON]
    return RetryTask(end_date=_ended(ti, "up_for_retry"), rendered_map_index=label, retry_reason=reason)


def _stop(task: Any) -> None:
    try:
        task.on_kill()
    except Exception as error:  # noqa: BLE001 - the attempt ends in any case
        _log.error("on_kill() failed", exc_info=user_frames(error))


def _in_words(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


_CALLBACK_OF = {"success": "success", "failed": "failure", "up_for_retry": "retry", "skipped": "skipped"}


def _run_outcome_callbacks(outcome: Terminal, context: Context) -> None:
    kind = _CALLBACK_OF.get(context["ti"].state)
    if kind is not None:
        run_callbacks(context["task"], kind, context)


# --- before: arguments and templates ---------------------------------------------------------------------------------


def _forget_earlier_attempts(startup: StartupDetails) -> None:
    ti = startup.ti
    # A resumed task goes on; what it pushed before it waited is its own.
    if startup.ti_context.next_method is not None:
        return
    for key in startup.ti_context.xcom_keys_to_clear:
        comms.ask(DeleteXCom(key=key, dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id, map_index=ti.map_index))


def prepare(context: Context) -> Any:
    """The task to run, with this instance's arguments, references resolved and templates rendered.

    The DAG's own task keeps the fields its author wrote.
    """
    task, ti = context["task"], context["ti"]
    if task.is_mapped:
        if ti.map_index == UNMAPPED:
            raise AirflowException(f"The task {task.task_id!r} is mapped, but this instance has no map index.")
        task = task.unmap(ti.map_index, context)
    else:
        for field in task.template_fields:
            # Only if there is something to fill in: a copy touches all that a task holds, and each touch copies a page.
            if getattr(task, field):
                task = copy.copy(task)
                break
    context["task"] = ti.task = task
    _fill_fields(task, context)
    return task


def _fill_fields(task: Any, context: Context) -> None:
    extensions = tuple(task.template_ext)
    finished: frozenset[int] = getattr(task, "finished_values", frozenset())
    renderer: Any = None
    shown: dict[str, Any] = {}
    for field in task.template_fields:
        value = getattr(task, field)
        if not value:
            continue
        if needs_rendering(value, extensions, finished):
            renderer = renderer or template_engine().Renderer(task, context)
            value = renderer.render(value)
            shown[field] = _shown(value)
            setattr(task, field, value)
        else:
            filled = resolved(value, context)
            if filled is not value:
                setattr(task, field, filled)
    if shown:
        comms.ask(SetRenderedFields(rendered_fields=shown))


def _shown(value: Any) -> Any:
    """A rendered field as people will see it: text, cut if it is long."""
    if isinstance(value, dict):
        return {str(key): _shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_shown(item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= _LONGEST_FIELD else f"{text[:_LONGEST_FIELD]}... ({len(text)} characters)"


# --- the run itself, and what it leaves ------------------------------------------------------------------------------


def _work_of(task: Any, startup: StartupDetails, deadline: Deadline) -> Callable[[Context], Any]:
    """What this process is for: the task from its beginning, or what follows its wait."""
    if startup.ti_context.next_method is None:
        return task.execute  # type: ignore[no-any-return]
    next_method, next_kwargs = resumption(startup.ti_context, is_used_up=deadline.is_used_up)
    return lambda context: task.resume_execution(next_method, next_kwargs, context)


def _run(task: Any, context: Context, work: Callable[[Context], Any]) -> Any:
    task.pre_execute(context)
    try:
        result = work(context)
        if result is not None and inspect.isawaitable(result):
            result = _event_loops().run(_awaited(result))
        if type(result) is GeneratorType:
            result = drained(result, context)
    except DownstreamTasksSkipped as skip:
        context["ti"].skip_downstream(skip.tasks)
        result = None
    task.post_execute(context, result)
    return result


def _is_async(task: Any) -> bool:
    return any(inspect.iscoroutinefunction(getattr(task, name, None)) for name in ("execute", "python_callable"))


def _is_mapped_bash(task: Any) -> bool:
    # One that is not mapped has loaded what it needs already.
    return task.is_mapped and issubclass(task.operator_class, BashOperator | BashSensor)


def _event_loops() -> Any:
    """The module asyncio; it is loaded on first use."""
    # With what it brings along (ssl, selectors ...) it makes every fork of every task a fifth dearer.
    return importlib.import_module("asyncio")


async def _awaited(result: Any) -> Any:
    return await result


def _push_result(task: Any, ti: RuntimeTaskInstance, result: Any) -> None:
    # A task that returns None leaves nothing; a mapped task takes itself out of its output that way.
    if result is None or not task.do_xcom_push:
        return
    what = f"the return value of task {ti.task_id!r} in DAG {ti.dag_id!r}"
    if task.multiple_outputs:
        if not isinstance(result, Mapping):
            raise NotSerializable(what, f"multiple_outputs needs a dict, but it is a {type(result).__name__}")
        for key, value in result.items():
            if not isinstance(key, str):
                raise NotSerializable(what, f"multiple_outputs needs keys that are text, but one is {key!r}")
            ti.xcom_push(key, value)
    XCom.set(
        XCOM_RETURN_KEY,
        result,
        dag_id=ti.dag_id,
        task_id=ti.task_id,
        run_id=ti.run_id,
        map_index=ti.map_index,
        what=what,
    )


def _map_index_label(context: Context) -> str | None:
    """The name the author gives a mapped instance. None: there is no template, or it cannot be rendered."""
    ti, template = context["ti"], context["map_index_template"]
    if not template or not ti.is_mapped:
        return None
    try:
        label = template_engine().Renderer(context["task"], context).render(str(template))
    except Exception as error:  # noqa: BLE001 - a label is not worth an attempt
        _log.warning("map_index_template cannot be rendered: %s", _in_words(error))
        return None
    ti.rendered_map_index = str(label)
    return str(label)


def _ended(ti: RuntimeTaskInstance, state: str) -> datetime:
    ti.state, ti.end_date = state, _now()
    return ti.end_date


def _now() -> datetime:
    return datetime.now(UTC)
