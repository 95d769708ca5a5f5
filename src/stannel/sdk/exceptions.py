"""The exceptions DAG authors raise and catch, under the names they know."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

__all__ = [
    "AirflowBadRequest",
    "AirflowConfigException",
    "AirflowException",
    "AirflowFailException",
    "AirflowInactiveAssetInInletOrOutletException",
    "AirflowNotFoundException",
    "AirflowOptionalProviderFeatureException",
    "AirflowProviderDeprecationWarning",
    "AirflowRescheduleException",
    "AirflowRuntimeError",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "AirflowTaskTerminated",
    "AirflowTaskTimeout",
    "DagNotFound",
    "DagRunAlreadyExists",
    "DownstreamTasksSkipped",
    "ParamValidationError",
    "RemovedInAirflow4Warning",
    "TaskDeferralError",
    "TaskDeferralTimeout",
    "TaskDeferred",
    "TaskNotFound",
    "XComNotFound",
]


class AirflowException(Exception):
    """Base of the errors that task code raises on purpose; the attempt fails and is retried if retries remain."""

    status_code = 500


class AirflowBadRequest(AirflowException):
    """A caller asked for something malformed."""

    status_code = 400


class AirflowNotFoundException(AirflowException):
    """The named thing does not exist."""

    status_code = 404


class AirflowConfigException(AirflowException):
    """A setting is missing or wrong."""


class AirflowOptionalProviderFeatureException(AirflowException):
    """A feature needs a package that is not installed."""


class AirflowRuntimeError(AirflowException):
    """The engine refused a request of the running task; `error` is its code."""

    def __init__(self, message: str, error: str = "GENERIC_ERROR", detail: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.error, self.detail = error, detail


class AirflowSkipException(AirflowException):
    """Raised by a task to end as skipped."""


class AirflowFailException(AirflowException):
    """Raised by a task to fail now, whatever retries remain."""


class AirflowInactiveAssetInInletOrOutletException(AirflowException):
    """A task names assets that are not active: another one has their name or uri, or no DAG defines them."""

    def __init__(self, inactive_assets: Sequence[Any]) -> None:
        shown = ", ".join(str(one.name or one.uri) for one in inactive_assets)
        super().__init__(
            f"The task has inlets or outlets that are not active: {shown}. The DAG's warnings say which other asset "
            "stands in their place; rename one of them, or define them in a DAG file."
        )
        self.inactive_assets = list(inactive_assets)


class AirflowSensorTimeout(AirflowException):
    """A sensor waited longer than its `timeout`. The task fails now, whatever retries remain."""


class AirflowRescheduleException(AirflowException):
    """Raised by a task to end here and be started again at a moment; its slot is free meanwhile, the try the same."""

    def __init__(self, reschedule_date: datetime) -> None:
        super().__init__(f"start again at {reschedule_date.isoformat()}")
        self.reschedule_date = reschedule_date


class DownstreamTasksSkipped(AirflowException):
    """Raised by a task to succeed and have these downstream tasks skipped."""

    def __init__(self, *, tasks: Sequence[str | tuple[str, int]]) -> None:
        super().__init__(f"skip {', '.join(map(str, tasks))}")
        self.tasks = list(tasks)


class XComNotFound(AirflowException):
    """A task needs a value that its upstream task did not leave."""

    def __init__(self, dag_id: str, task_id: str, key: str) -> None:
        super().__init__(f"The task {task_id!r} of DAG {dag_id!r} left no XCom {key!r}; return or push it there first.")
        self.dag_id, self.task_id, self.key = dag_id, task_id, key


class ParamValidationError(AirflowException):
    """A run parameter does not meet its schema."""


class DagNotFound(AirflowNotFoundException):
    """No DAG has that id."""


class DagRunAlreadyExists(AirflowBadRequest):
    """The DAG has a run of that id or logical date already."""

    def __init__(self, dag_id: str, run_id: str) -> None:
        super().__init__(f"The DAG {dag_id!r} already has a run {run_id!r}, or one with the same logical date.")
        self.dag_id, self.run_id = dag_id, run_id


class TaskNotFound(AirflowNotFoundException):
    """The DAG has no task of that id."""


class TaskDeferralError(AirflowException):
    """What a task waited for ended without an event; the attempt fails and is retried if retries remain."""


class TaskDeferralTimeout(AirflowException):
    """A task waited longer than the `timeout` of its deferral; the attempt fails and is retried if retries remain."""


class TaskDeferred(BaseException):
    """Ends the attempt here: `trigger` waits in its place, and the task goes on at its method `method_name` then.

    Not an `Exception`: task code that catches those must not swallow it. `method_name` None: the trigger ends the task.
    `timeout` is a timedelta or a number of seconds.
    """

    def __init__(
        self,
        *,
        trigger: Any,
        method_name: str | None,
        kwargs: dict[str, Any] | None = None,
        timeout: timedelta | float | None = None,
    ) -> None:
        super().__init__()
        self.trigger, self.method_name, self.kwargs = trigger, method_name, kwargs
        if timeout is not None and not isinstance(timeout, timedelta):
            if isinstance(timeout, bool) or not isinstance(timeout, int | float):
                raise ValueError(f"timeout must be a timedelta or a number of seconds, not {timeout!r}")
            timeout = timedelta(seconds=timeout)
        self.timeout = timeout

    def __str__(self) -> str:
        return f"waits for {type(self.trigger).__name__}, then goes on at {self.method_name}"


class AirflowTaskTimeout(BaseException):
    """The attempt ran longer than its `execution_timeout`. Not an `Exception`: task code must not swallow it."""


class AirflowTaskTerminated(BaseException):
    """The attempt was told to stop."""


class AirflowProviderDeprecationWarning(DeprecationWarning):
    """A provider package will drop what was used."""


class RemovedInAirflow4Warning(DeprecationWarning):
    """The next major version of the author API will drop what was used."""
