"""A sensor that waits for runs and tasks of other DAGs."""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from stannel.model.states import RunState, TaskState
from stannel.protocol.requests import GetDag, GetDRCount, GetTaskStates
from stannel.sdk import building, comms
from stannel.sdk.deferral import built_in
from stannel.sdk.exceptions import AirflowException, AirflowFailException, AirflowRuntimeError, AirflowSkipException
from stannel.sdk.operator import BaseOperator
from stannel.sdk.operators.python import call_shape, determine_kwargs
from stannel.sdk.sensors.base import DeferrableSensor
from stannel.triggers.base import BaseTrigger


class ExternalDagNotFoundError(AirflowException):
    """There is no DAG of the id that is waited for."""


class ExternalTaskNotFoundError(AirflowException):
    """The run that is waited for has no task of that id."""


class ExternalTaskGroupNotFoundError(AirflowException):
    """The run that is waited for has no task group of that id."""


class ExternalDagFailedError(AirflowException):
    """The run that is waited for reached one of the `failed_states`."""


class ExternalTaskFailedError(AirflowException):
    """A task that is waited for reached one of the `failed_states`."""


class ExternalTaskGroupFailedError(AirflowException):
    """A task of the group that is waited for reached one of the `failed_states`."""


class ExternalTaskSensor(DeferrableSensor):
    """Waits for another DAG's run of the same logical date, or for tasks or a task group in it.

    `execution_delta` is subtracted from the logical date; `execution_date_fn` computes one date or several from it.
    """

    trigger_module = "external_task"
    template_fields: Sequence[str] = (
        "external_dag_id",
        "external_task_id",
        "external_task_ids",
        "external_task_group_id",
    )

    def __init__(
        self,
        *,
        external_dag_id: str,
        external_task_id: str | None = None,
        external_task_ids: Collection[str] | None = None,
        external_task_group_id: str | None = None,
        allowed_states: Iterable[str] | None = None,
        skipped_states: Iterable[str] | None = None,
        failed_states: Iterable[str] | None = None,
        execution_delta: timedelta | None = None,
        execution_date_fn: Callable[..., Any] | None = None,
        check_existence: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if sum(one is not None for one in (external_task_id, external_task_ids, external_task_group_id)) > 1:
            raise self._wrong("give one of external_task_id, external_task_ids and external_task_group_id")
        if execution_delta is not None and execution_date_fn is not None:
            raise self._wrong("give execution_delta or execution_date_fn, not both")
        self.external_dag_id = external_dag_id
        self.external_task_id, self.external_task_ids = external_task_id, external_task_ids
        self.external_task_group_id = external_task_group_id
        self.execution_delta, self.execution_date_fn = execution_delta, execution_date_fn
        self.check_existence = check_existence
        self.allowed_states = self._states("allowed_states", [TaskState.SUCCESS.value], allowed_states)
        self.skipped_states = self._states("skipped_states", [], skipped_states)
        self.failed_states = self._states("failed_states", [], failed_states)
        every = [*self.allowed_states, *self.skipped_states, *self.failed_states]
        if len(set(every)) < len(every):
            raise self._wrong("a state is in more than one of allowed_states, skipped_states and failed_states")

    def _states(self, name: str, default: list[str], given: Iterable[str] | None) -> list[str]:
        if given is None:
            return default
        is_about_tasks = self.external_task_id or self.external_task_ids or self.external_task_group_id
        known: set[str] = set(TaskState if is_about_tasks else RunState)
        states = list(dict.fromkeys(str(getattr(state, "value", state)) for state in given))
        unknown = sorted(set(states) - known)
        if unknown:
            raise self._wrong(f"{name} has {unknown[0]!r}, which is none of {', '.join(sorted(known))}")
        return states

    def poke(self, context: Any) -> bool:
        dates = self._dates(context)
        self.log.info("Looking for %s on %s", self._wanted(), _shown(dates))
        if self.check_existence:
            self._check_existence(dates)
        if self._any_in(self.failed_states, dates):
            raise self._ended_badly(dates)
        if self._any_in(self.skipped_states, dates):
            raise self._was_skipped(dates)
        return self._all_allowed(dates)

    def trigger_for(self, context: Any) -> BaseTrigger:
        trigger: BaseTrigger = built_in("external_task", "WorkflowTrigger")(
            external_dag_id=self.external_dag_id,
            logical_dates=self._dates(context),
            external_task_ids=self._task_ids or None,
            external_task_group_id=self.external_task_group_id,
            failed_states=self.failed_states,
            skipped_states=self.skipped_states,
            allowed_states=self.allowed_states,
            poke_interval=self.poke_interval,
            soft_fail=self.soft_fail,
        )
        return trigger

    def execute_complete(self, context: Any, event: Any = None) -> None:
        """What the trigger saw decides how the sensor ends."""
        status = event.get("status") if isinstance(event, dict) else None
        if status == "success":
            self.log.info("%s is there", self._wanted())
        elif status == "skipped":
            raise self._was_skipped(self._dates(context))
        elif status == "failed":
            raise self._ended_badly(self._dates(context))
        else:
            raise AirflowException(f"The wait for {self._wanted()} ended in a way nobody knows: {event!r}.")

    def _ended_badly(self, dates: list[datetime]) -> AirflowException:
        words = f"{self._wanted()} reached one of the states {', '.join(self.failed_states)} on {_shown(dates)}."
        return AirflowSkipException(words) if self.soft_fail else self._failure()(words)

    def _was_skipped(self, dates: list[datetime]) -> AirflowException:
        return AirflowSkipException(f"{self._wanted()} was skipped on {_shown(dates)}.")

    # --- what is waited for ----------------------------------------------------------------------------------------

    @property
    def _task_ids(self) -> list[str]:
        ids = self.external_task_ids if self.external_task_id is None else [self.external_task_id]
        return list(ids or [])

    def _wanted(self) -> str:
        if self.external_task_group_id:
            return f"the task group {self.external_task_group_id!r} of DAG {self.external_dag_id!r}"
        if self._task_ids:
            return f"{', '.join(map(repr, self._task_ids))} of DAG {self.external_dag_id!r}"
        return f"a run of DAG {self.external_dag_id!r}"

    def _failure(self) -> type[AirflowException]:
        if self.external_task_group_id:
            return ExternalTaskGroupFailedError
        return ExternalTaskFailedError if self._task_ids else ExternalDagFailedError

    def _dates(self, context: Any) -> list[datetime]:
        moment = context["logical_date"]
        if moment is None:
            raise AirflowFailException("An ExternalTaskSensor needs a logical date to compare, and this run has none.")
        if self.execution_delta is not None:
            return [moment - self.execution_delta]
        if self.execution_date_fn is None:
            return [moment]
        kwargs = determine_kwargs(self.execution_date_fn, (moment,), {}, context)
        if "context" in call_shape(self.execution_date_fn).names:
            kwargs["context"] = context
        answer = self.execution_date_fn(moment, **kwargs)
        return list(answer) if isinstance(answer, list | tuple | set) else [answer]

    # --- how it stands ---------------------------------------------------------------------------------------------

    def _any_in(self, states: list[str], dates: list[datetime]) -> bool:
        if not states:
            return False
        if self._is_about_a_run:
            return self._count(dates, states) > 0
        return any(state in states for tasks in self._task_states(dates).values() for state in tasks.values())

    def _all_allowed(self, dates: list[datetime]) -> bool:
        if self._is_about_a_run:
            return self._count(dates, self.allowed_states) == len(dates)
        runs = self._task_states(dates)
        return len(runs) == len(dates) and all(
            all(state in self.allowed_states for state in tasks.values()) and not self._missing(tasks)
            for tasks in runs.values()
        )

    @property
    def _is_about_a_run(self) -> bool:
        return not self._task_ids and not self.external_task_group_id

    def _count(self, dates: list[datetime], states: list[str] | None = None) -> int:
        question = GetDRCount(dag_id=self.external_dag_id, logical_dates=dates, states=states)
        return int(comms.ask(question).count)

    def _task_states(self, dates: list[datetime]) -> dict[str, dict[str, str | None]]:
        """By run id and then by task: the states. A run without one of the tasks is not there."""
        question = GetTaskStates(
            dag_id=self.external_dag_id,
            task_ids=self._task_ids or None,
            task_group_id=self.external_task_group_id,
            logical_dates=dates,
        )
        try:
            answer: dict[str, dict[str, str | None]] = comms.ask(question).task_states
        except AirflowRuntimeError as error:
            if not _is_not_found(error):
                raise
            return {}
        return answer

    def _missing(self, tasks: Collection[str]) -> list[str]:
        # The instances of a mapped task are called after it, with a number behind.
        known = {*tasks, *(name.rpartition("_")[0] for name in tasks)}
        return [task_id for task_id in self._task_ids if task_id not in known]

    def _check_existence(self, dates: list[datetime]) -> None:
        try:
            comms.ask(GetDag(self.external_dag_id))
        except AirflowRuntimeError as error:
            if not _is_not_found(error):
                raise
            raise ExternalDagNotFoundError(f"There is no DAG {self.external_dag_id!r} to wait for.") from None
        if self._is_about_a_run or not self._count(dates):
            return
        runs = self._task_states(dates)
        if self.external_task_group_id and not runs:
            raise ExternalTaskGroupNotFoundError(f"There is no {self._wanted().removeprefix('the ')} to wait for.")
        for missing in self._missing({name for tasks in runs.values() for name in tasks}):
            raise ExternalTaskNotFoundError(f"DAG {self.external_dag_id!r} has no task {missing!r} to wait for.")


def _shown(dates: list[datetime]) -> str:
    return ", ".join(date.isoformat() for date in dates)


def _is_not_found(error: AirflowRuntimeError) -> bool:
    return (error.detail or {}).get("status_code") == 404


class ExternalTaskMarker(BaseOperator):
    """Says that a task of another DAG waits for this one. It does nothing else: clearing it clears this DAG only."""

    template_fields: Sequence[str] = ("external_dag_id", "external_task_id", "logical_date")
    does_nothing: ClassVar[bool] = True

    def __init__(
        self,
        *,
        external_dag_id: str,
        external_task_id: str,
        logical_date: str | datetime | None = "{{ logical_date.isoformat() }}",
        recursion_depth: int = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.external_dag_id, self.external_task_id = external_dag_id, external_task_id
        self.logical_date, self.recursion_depth = logical_date, recursion_depth
        building.warn(f"task {self.task_id!r}: clearing it does not clear {external_task_id!r} of {external_dag_id!r}")

    def execute(self, context: Any) -> None:
        pass
