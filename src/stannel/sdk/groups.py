"""Task groups: tasks that belong together, named `group.task` and connected as one."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, overload

from stannel.errors import DagInvalid
from stannel.model.ids import check_author_id
from stannel.sdk import building
from stannel.sdk.node import Node
from stannel.sdk.references import XComArg


class TaskGroup(Node):
    """`with TaskGroup("load"):` tasks made inside are called `load.<task_id>`. The DAG is a group without an id."""

    def __init__(
        self,
        group_id: str | None,
        prefix_group_id: bool = True,
        parent_group: "TaskGroup | None" = None,
        dag: Any = None,
        default_args: dict[str, Any] | None = None,
        tooltip: str = "",
        ui_color: str = "",
        ui_fgcolor: str = "",
        add_suffix_on_collision: bool = False,
        group_display_name: str = "",
    ) -> None:
        self.dag: Any = dag or (parent_group.dag if parent_group else None) or building.current_dag()
        self.prefix_group_id, self.tooltip = prefix_group_id, tooltip
        self.ui_color, self.ui_fgcolor, self.group_display_name = ui_color, ui_fgcolor, group_display_name
        self.default_args = dict(default_args or {})
        self.children: dict[str, Any] = {}
        self.parent_group = parent_group
        self._group_id: str | None = None
        if group_id is not None:
            self._join(group_id, add_suffix_on_collision)

    def _join(self, group_id: str, add_suffix_on_collision: bool) -> None:
        check_author_id("task group", group_id)
        if self.dag is None:
            raise RuntimeError(f"the task group {group_id!r} belongs to no DAG; make it inside `with DAG(...)`")
        if self.parent_group is None:
            is_open = self.dag is building.current_dag()
            self.parent_group = building.current_group() if is_open else self.dag.task_group
        full_id = self.parent_group.child_id(group_id)
        if add_suffix_on_collision:
            full_id = unused_id(full_id, self.dag.taken_ids())
        elif full_id in self.dag.taken_ids():
            reason = f"it has a task or task group with the id {full_id!r} already; give this task group another id"
            raise DagInvalid(self.dag.dag_id, self.dag.fileloc or None, reason)
        self._group_id = full_id
        self.dag.task_groups[full_id] = self
        self.parent_group.add(self)

    @property
    def group_id(self) -> str | None:
        """The full id. None: this is the DAG's own group."""
        return self._group_id

    @property
    def node_id(self) -> str | None:
        return self._group_id

    @property
    def is_root(self) -> bool:
        return self._group_id is None

    @property
    def label(self) -> str:
        return self.group_display_name or (self._group_id or "").rpartition(".")[2]

    def child_id(self, name: str) -> str:
        """The id a child of that name gets."""
        prefix = self._prefix()
        return f"{prefix}.{name}" if prefix else name

    def _prefix(self) -> str:
        if self._group_id is None:
            return ""
        if self.prefix_group_id:
            return self._group_id
        return self.parent_group._prefix() if self.parent_group else ""

    def inherited_default_args(self) -> dict[str, Any]:
        """Default arguments of this group over those of the groups around it."""
        outer = self.parent_group.inherited_default_args() if self.parent_group else {}
        return {**outer, **self.default_args}

    def add(self, child: Any) -> None:
        self.children[child.node_id] = child

    def iter_tasks(self) -> Iterator[Any]:
        """Every task inside, at any depth."""
        for child in self.children.values():
            if isinstance(child, TaskGroup):
                yield from child.iter_tasks()
            else:
                yield child

    def has_task(self, task: Any) -> bool:
        return any(member is task for member in self.iter_tasks())

    @property
    def roots(self) -> Sequence[Any]:
        members = {task.task_id: task for task in self.iter_tasks()}
        return [task for task in members.values() if not task.upstream_task_ids & members.keys()]

    @property
    def leaves(self) -> Sequence[Any]:
        members = {task.task_id: task for task in self.iter_tasks() if not task.is_teardown}
        return [task for task in members.values() if not task.downstream_task_ids & members.keys()]

    def get_roots(self) -> Iterator[Any]:
        return iter(self.roots)

    def get_leaves(self) -> Iterator[Any]:
        return iter(self.leaves)

    def __enter__(self) -> Self:
        building.open_group(self)
        return self

    def __exit__(self, *error: object) -> None:
        building.close_group()

    def __repr__(self) -> str:
        return f"<TaskGroup: {self._group_id}>"


def unused_id(wanted: str, taken: Any) -> str:
    """The id itself, or the first free one of `id__1`, `id__2` ..."""
    if wanted not in taken:
        return wanted
    number = 1
    while f"{wanted}__{number}" in taken:
        number += 1
    return f"{wanted}__{number}"


class _TaskGroupFactory:
    """A function that makes a task group each time it is called."""

    def __init__(self, function: Callable[..., Any], settings: dict[str, Any]) -> None:
        self.function, self.settings = function, settings
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        settings = {"group_id": self.function.__name__, "tooltip": self.function.__doc__ or "", **self.settings}
        with TaskGroup(**settings, add_suffix_on_collision=True) as group:
            result = self.function(*args, **kwargs)
        # The group stands for the call in arrows; a returned output also carries its value onwards.
        return result if isinstance(result, XComArg) or _holds_outputs(result) else group

    def override(self, **settings: Any) -> "_TaskGroupFactory":
        return _TaskGroupFactory(self.function, {**self.settings, **settings})

    def __getattr__(self, name: str) -> Any:
        if name in ("expand", "expand_kwargs", "partial"):
            raise NotImplementedError(
                f"the task group {self.function.__name__!r} cannot be mapped yet; map the tasks inside it"
            )
        raise AttributeError(name)


def _holds_outputs(result: Any) -> bool:
    values = result.values() if isinstance(result, dict) else result if isinstance(result, list | tuple) else ()
    return any(isinstance(value, XComArg) for value in values)


@overload
def task_group(function: Callable[..., Any], /) -> _TaskGroupFactory: ...
@overload
def task_group(**settings: Any) -> Callable[[Callable[..., Any]], _TaskGroupFactory]: ...
def task_group(function: Callable[..., Any] | None = None, **settings: Any) -> Any:
    """Make a function that builds a task group, as `@task_group` or `@task_group(group_id=...)`."""
    if function is not None:
        return _TaskGroupFactory(function, settings)
    return lambda decorated: _TaskGroupFactory(decorated, settings)
