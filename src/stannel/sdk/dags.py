"""The DAG as its author writes it."""

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Self, overload

from stannel.errors import DagInvalid, InvalidId, closest, did_you_mean
from stannel.model.ids import check_author_id
from stannel.sdk import building, environment
from stannel.sdk.assets.schedule import schedule_of
from stannel.sdk.exceptions import TaskNotFound
from stannel.sdk.groups import TaskGroup
from stannel.sdk.notset import NOTSET
from stannel.sdk.params import ParamsDict
from stannel.sdk.references import DagParam
from stannel.sdk.task_arguments import Callbacks
from stannel.sdk.timetables import Timetable
from stannel.sdk.timezone import as_moment, default_timezone

_CATCHUP = environment.setting("SCHEDULER__CATCHUP_BY_DEFAULT", "false").lower() in ("true", "1")


class DAG:
    """Tasks, the order between them, and when they run: `with DAG("sales", schedule="@daily"): ...`."""

    def __init__(
        self,
        dag_id: str,
        *,
        description: str | None = None,
        schedule: Any = None,
        start_date: datetime | None = None,
        end_date: datetime | None = None,
        template_searchpath: str | Iterable[str] | None = None,
        user_defined_macros: dict[str, Any] | None = None,
        user_defined_filters: dict[str, Any] | None = None,
        default_args: dict[str, Any] | None = None,
        max_active_tasks: int | None = None,
        max_active_runs: int | None = None,
        max_consecutive_failed_dag_runs: int = 0,
        dagrun_timeout: timedelta | None = None,
        catchup: bool | None = None,
        on_success_callback: Callbacks = None,
        on_failure_callback: Callbacks = None,
        doc_md: str | None = None,
        params: Mapping[str, Any] | None = None,
        access_control: Mapping[str, Any] | None = None,
        is_paused_upon_creation: bool | None = None,
        jinja_environment_kwargs: dict[str, Any] | None = None,
        render_template_as_native_obj: bool = False,
        tags: Collection[str] | None = None,
        owner_links: dict[str, str] | None = None,
        auto_register: bool = True,
        fail_fast: bool = False,
        dag_display_name: str | None = None,
    ) -> None:
        self.fileloc = building.defining_file()
        try:
            self.dag_id = check_author_id("DAG", dag_id)
        except InvalidId as error:
            raise DagInvalid(str(dag_id), self.fileloc or None, str(error).rstrip(".")) from None
        self.default_args = dict(default_args or {})
        self.params = ParamsDict({**(self.default_args.pop("params", None) or {}), **_params(params)})
        self.description, self.doc_md = description, doc_md
        self.schedule = schedule
        self._take_dates(start_date, end_date)
        self.timetable = self._timetable(schedule)
        is_one = isinstance(template_searchpath, str)
        self.template_searchpath = [template_searchpath] if is_one else template_searchpath
        self.user_defined_macros, self.user_defined_filters = user_defined_macros, user_defined_filters
        self.jinja_environment_kwargs = jinja_environment_kwargs
        self.render_template_as_native_obj = render_template_as_native_obj
        self.max_active_tasks, self.max_active_runs = max_active_tasks, max_active_runs
        self.max_consecutive_failed_dag_runs = max_consecutive_failed_dag_runs
        self.dagrun_timeout = dagrun_timeout
        self.catchup = _CATCHUP if catchup is None else catchup
        self.fail_fast = fail_fast
        self.on_success_callback, self.on_failure_callback = on_success_callback, on_failure_callback
        self.access_control, self.owner_links = access_control, dict(owner_links or {})
        self.is_paused_upon_creation = is_paused_upon_creation
        self.tags = set(tags or ())
        self.auto_register = auto_register
        self.dag_display_name = dag_display_name or self.dag_id
        self.task_dict: dict[str, Any] = {}
        self.task_groups: dict[str, TaskGroup] = {}
        self.edge_labels: dict[tuple[str, str], str] = {}
        self.task_group = TaskGroup(None, dag=self)

    def _take_dates(self, start_date: Any, end_date: Any) -> None:
        start_date = start_date if start_date is not None else self.default_args.get("start_date")
        end_date = end_date if end_date is not None else self.default_args.get("end_date")
        self.timezone: tzinfo = (
            getattr(start_date, "tzinfo", None) or getattr(end_date, "tzinfo", None) or default_timezone()
        )
        try:
            self.start_date = None if start_date is None else as_moment(start_date, self.timezone)
            self.end_date = None if end_date is None else as_moment(end_date, self.timezone)
        except (ValueError, AttributeError) as error:
            raise self.invalid(f"its start or end date cannot be read: {error}") from None

    def _timetable(self, schedule: Any) -> Timetable:
        try:
            return schedule_of(schedule, self.timezone)
        except ValueError as error:
            raise self.invalid(f"its schedule cannot be used: {error}") from None

    def invalid(self, reason: str) -> DagInvalid:
        """The error that names this DAG and its file."""
        return DagInvalid(self.dag_id, self.fileloc or None, reason)

    # --- its tasks -------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> list[Any]:
        """Every task, in the order in which they were written."""
        return list(self.task_dict.values())

    @property
    def task_ids(self) -> list[str]:
        return list(self.task_dict)

    def taken_ids(self) -> set[str]:
        """Ids of tasks and task groups: both live in one namespace."""
        return self.task_dict.keys() | self.task_groups.keys()

    def add_task(self, task: Any) -> None:
        task.dag = self

    def add_tasks(self, tasks: Iterable[Any]) -> None:
        for task in tasks:
            self.add_task(task)

    def has_task(self, task_id: str) -> bool:
        return task_id in self.task_dict

    def get_task(self, task_id: str) -> Any:
        """The task of that id; `TaskNotFound` suggests what was meant."""
        try:
            return self.task_dict[task_id]
        except KeyError:
            hint = did_you_mean(closest(task_id, self.task_dict)) or "."
            raise TaskNotFound(f"The DAG {self.dag_id!r} has no task {task_id!r}{hint}") from None

    @property
    def roots(self) -> list[Any]:
        """Tasks that wait for no other."""
        return [task for task in self.tasks if not task.upstream_task_ids]

    @property
    def leaves(self) -> list[Any]:
        """Tasks that no other waits for."""
        return [task for task in self.tasks if not task.downstream_task_ids]

    @property
    def folder(self) -> str:
        """Where the DAG file lies: templates are looked for here."""
        return str(Path(self.fileloc).parent)

    @property
    def filepath(self) -> str:
        return self.fileloc

    @property
    def owner(self) -> str:
        return ", ".join(sorted({task.owner for task in self.tasks}))

    def param(self, name: str, default: Any = NOTSET) -> DagParam:
        """A run parameter, usable as an argument of a task."""
        return DagParam(self, name, default)

    # --- using it --------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        building.open_dag(self)
        return self

    def __exit__(self, error_type: object, *error: object) -> None:
        building.close_dag()
        if error_type is None and self.auto_register:
            building.register_dag(self)

    def test(self, *, logical_date: datetime | None = None, run_conf: dict[str, Any] | None = None) -> int:
        """Run this DAG once now through `stannel dags test`; the exit code says how it ended."""
        command = [sys.executable, "-m", "stannel.cli.main", "dags", "test", self.dag_id, "--file", self.fileloc]
        if logical_date is not None:
            command += ["--logical-date", logical_date.isoformat()]
        if run_conf:
            command += ["--conf", json.dumps(run_conf)]
        # Not subprocess: every process that tasks are forked from would hold it.
        return os.spawnv(os.P_WAIT, sys.executable, command)  # noqa: S606

    def __repr__(self) -> str:
        return f"<DAG: {self.dag_id}>"


def _params(params: Mapping[str, Any] | None) -> dict[str, Any]:
    if isinstance(params, ParamsDict):
        return {name: params.get_param(name) for name in params}
    return dict(params or {})


class _DagFactory:
    """A function that makes a DAG each time it is called; its arguments become run parameters."""

    def __init__(self, function: Callable[..., Any], dag_id: str, settings: dict[str, Any]) -> None:
        self.function, self.dag_id, self.settings = function, dag_id, settings
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> DAG:
        given = inspect.signature(self.function).bind(*args, **kwargs)
        given.apply_defaults()
        settings = dict(self.settings)
        settings.setdefault("doc_md", inspect.cleandoc(self.function.__doc__) if self.function.__doc__ else None)
        with DAG(self.dag_id or self.function.__name__, **settings) as made:
            references = {name: made.param(name, value) for name, value in given.arguments.items()}
            self.function(**references)
        return made


@overload
def dag(function: Callable[..., Any], /) -> _DagFactory: ...
@overload
def dag(dag_id: str = "", **settings: Any) -> Callable[[Callable[..., Any]], _DagFactory]: ...
def dag(dag_id: Any = "", **settings: Any) -> Any:
    """Make a function that builds a DAG, as `@dag` or `@dag(schedule=...)`; call it once to have the DAG."""
    if callable(dag_id):
        return _DagFactory(dag_id, "", settings)
    return lambda function: _DagFactory(function, dag_id, settings)
