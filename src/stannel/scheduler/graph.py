"""The shape of a DAG and how far a run of it got: what both planning and explaining a run start from. Pure."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from stannel.model.dag import DagSpec, TaskSpec, TriggerRule
from stannel.model.ids import UNMAPPED
from stannel.model.plan import Instance
from stannel.model.states import TASK_ENDS, TaskState
from stannel.scheduler.rules import Upstream

T = TaskState

# The instances of the run before this one: how each (task id, map index) stands.
Past = Mapping[tuple[str, int], TaskState]
# How the instances of each task stand.
Tallies = Mapping[str, Upstream]

_GOOD_PAST = frozenset({T.SUCCESS, T.SKIPPED})


# How one instance counts, by its state. Counts are shared and never written to.
OPEN = Upstream(total=1)
SINGLE: dict[TaskState, Upstream] = dict.fromkeys(TaskState, OPEN) | {
    T.SUCCESS: Upstream(total=1, done=1, success=1),
    T.FAILED: Upstream(total=1, done=1, failed=1),
    T.UPSTREAM_FAILED: Upstream(total=1, done=1, upstream_failed=1),
    T.SKIPPED: Upstream(total=1, done=1, skipped=1),
    T.REMOVED: Upstream(total=1, done=1, removed=1),
}


class Graph:
    """One version of a DAG, worked out once and used for every plan of its runs."""

    def __init__(self, spec: DagSpec) -> None:
        self.dag_id = spec.dag_id
        self.fail_fast = spec.fail_fast
        self.tasks: dict[str, TaskSpec] = {task.task_id: task for task in spec.tasks}
        self.upstream: dict[str, tuple[str, ...]] = {task.task_id: task.upstream for task in spec.tasks}
        self.downstream = _downstream(self.upstream)
        self.order = _topological(self.upstream, self.downstream)
        self.leaves = frozenset(task_id for task_id in self.tasks if self._decides_run(task_id))
        self.has_mapped = any(task.mapping is not None for task in spec.tasks)
        self.looks_back = any(task.depends_on_past or task.wait_for_downstream for task in spec.tasks)

    def _decides_run(self, task_id: str) -> bool:
        # The last working tasks decide how a run ended; a teardown only if its author asked for it.
        if self.tasks[task_id].is_teardown:
            return self.tasks[task_id].on_failure_fail_dagrun
        return all(self.tasks[follower].is_teardown for follower in self.downstream[task_id])


def by_task(instances: Iterable[Instance]) -> dict[str, list[Instance]]:
    """The instances of each task, in the order of their map index."""
    found: dict[str, list[Instance]] = {}
    for one in instances:
        if one.task_id in found:
            found[one.task_id].append(one)
        else:
            found[one.task_id] = [one]
    for several in found.values():
        if len(several) > 1:
            several.sort(key=_map_index)
    return found


def tally(states: Sequence[TaskState]) -> Upstream:
    """Count how the instances of one task ended."""
    if len(states) == 1:
        return SINGLE[states[0]]
    return Upstream(
        total=len(states),
        done=sum(map(TASK_ENDS.__contains__, states)),
        success=states.count(T.SUCCESS),
        failed=states.count(T.FAILED),
        upstream_failed=states.count(T.UPSTREAM_FAILED),
        skipped=states.count(T.SKIPPED),
        removed=states.count(T.REMOVED),
    )


def upstream_of(graph: Graph, tallies: Tallies, task: TaskSpec) -> Upstream:
    """The counts a trigger rule judges. An upstream task nobody knows counts as one that has not ended."""
    found = [tallies.get(task_id, OPEN) for task_id in task.upstream]
    if task.trigger_rule is not TriggerRule.ALL_DONE_SETUP_SUCCESS:
        return found[0] if len(found) == 1 else _sum(found)
    is_setup = [task_id in graph.tasks and graph.tasks[task_id].is_setup for task_id in task.upstream]
    up, setups = _sum(found), _sum([one for one, setup in zip(found, is_setup, strict=True) if setup])
    up.setup_total, up.setup_done, up.setup_success = setups.total, setups.done, setups.success
    up.setup_failed, up.setup_skipped = setups.failed + setups.upstream_failed, setups.skipped
    return up


class PreviousRun:
    """The run before this one, for the tasks that depend on it. Without states: there was none."""

    def __init__(self, states: Past | None) -> None:
        self.states = states or {}
        self.unsettled = {task_id for (task_id, _), state in self.states.items() if state not in _GOOD_PAST}

    def obstacle(self, graph: Graph, task: TaskSpec, map_index: int) -> str | None:
        """The task whose instances there keep this instance from starting. None: it may start."""
        if task.task_id not in self.unsettled and not task.wait_for_downstream:
            return None
        if (task.depends_on_past or task.wait_for_downstream) and not self._settled(task.task_id, map_index):
            return task.task_id
        followers = graph.downstream[task.task_id] if task.wait_for_downstream else ()
        return next((one for one in followers if one in self.unsettled), None)

    def _settled(self, task_id: str, map_index: int) -> bool:
        # A mapped task that was not expanded there stands for all its indices; one it did not have holds nothing up.
        state = self.states.get((task_id, map_index)) or self.states.get((task_id, UNMAPPED), T.SUCCESS)
        return state in _GOOD_PAST


def _sum(tallies: Iterable[Upstream]) -> Upstream:
    up = Upstream()
    for one in tallies:
        up.total += one.total
        # Most upstream tasks of a run that is going have not ended: then there is nothing else to add.
        if one.done:
            up.done += one.done
            up.success += one.success
            up.failed += one.failed
            up.upstream_failed += one.upstream_failed
            up.skipped += one.skipped
            up.removed += one.removed
    return up


def _map_index(one: Instance) -> int:
    return one.map_index


def _downstream(upstream: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {task_id: [] for task_id in upstream}
    for task_id, above in upstream.items():
        for one in above:
            if one in found:
                found[one].append(task_id)
    return {task_id: tuple(below) for task_id, below in found.items()}


def _topological(upstream: Mapping[str, tuple[str, ...]], downstream: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Every task after its upstream tasks, otherwise in the author's order; tasks in a circle stand last."""
    open_above = {task_id: sum(one in upstream for one in above) for task_id, above in upstream.items()}
    ready = deque(task_id for task_id, count in open_above.items() if not count)
    order: list[str] = []
    while ready:
        task_id = ready.popleft()
        order.append(task_id)
        for below in downstream[task_id]:
            open_above[below] -= 1
            if not open_above[below]:
                ready.append(below)
    return (*order, *(task_id for task_id, count in open_above.items() if count))
