"""What happens next in a run, decided from the states of its task instances. Pure: the caller loads, applies and wakes.

One pass in topological order is enough: whatever a task becomes in this plan is already seen by the tasks after it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from stannel.model.dag import Mapping as TaskMapping
from stannel.model.dag import MapSource, TaskSpec, TriggerRule
from stannel.model.ids import UNMAPPED
from stannel.model.plan import Expand, Instance, Move, RunPlan
from stannel.model.states import TASK_ENDS, RunState, TaskState
from stannel.scheduler.graph import OPEN, SINGLE, Graph, Past, PreviousRun, by_task, tally, upstream_of
from stannel.scheduler.rules import Upstream, Verdict, judge
from stannel.scheduler.waiting import because, deadlock, listed, why_waiting

__all__ = ["Graph", "plan_run", "why_waiting"]

T = TaskState

# How long the list is that a task pushed: (task id, XCom key) to a number of items.
Lengths = Mapping[tuple[str, str], int]

_PAUSED = frozenset({T.UP_FOR_RETRY, T.UP_FOR_RESCHEDULE})
_NOT_STARTED = frozenset({T.NONE, T.SCHEDULED}) | _PAUSED
_ENDS = {Verdict.SKIP: T.SKIPPED, Verdict.UPSTREAM_FAILED: T.UPSTREAM_FAILED}


def plan_run(
    graph: Graph,
    instances: Iterable[Instance],
    *,
    now: int,
    lengths: Lengths,
    past: Past | None,
    max_map_length: int,
) -> RunPlan:
    """Everything that can be done with a run at this moment. `past` None: there is no previous run."""
    planner = _Planner(graph, instances, now=now, lengths=lengths, past=past, max_map_length=max_map_length)
    planner.walk()
    # A task that failed only in this plan changes what its neighbours may do.
    if graph.fail_fast and not planner.failing and planner.has_failed():
        planner.failing = True
        planner.walk()
    return planner.plan()


class _Planner:
    """One plan in the making: `changed` holds the states that differ from those the instances came with."""

    def __init__(
        self,
        graph: Graph,
        instances: Iterable[Instance],
        *,
        now: int,
        lengths: Lengths,
        past: Past | None,
        max_map_length: int,
    ) -> None:
        self.graph, self.now, self.lengths = graph, now, lengths
        self.previous = PreviousRun(past if graph.looks_back else None)
        self.max_map_length = max_map_length
        self.by_task = by_task(instances)
        self.changed: dict[int, TaskState] = {}
        self.notes: dict[int, str] = {}
        self.expand: list[Expand] = []
        self.tallies: dict[str, Upstream] = {}
        self.verdicts: dict[tuple[TriggerRule, tuple[str, ...]], Verdict] = {}
        self.waits_for_past = False
        self.failing = graph.fail_fast and self.has_failed()

    def has_failed(self) -> bool:
        """Whether a task that is not a teardown failed."""
        tasks = self.graph.tasks
        return any(
            T.FAILED in self._states(found)
            for task_id, found in self.by_task.items()
            if task_id in tasks and not tasks[task_id].is_teardown
        )

    def walk(self) -> None:
        """Decide for every task, upstream first."""
        self.expand = []
        self.verdicts = {}
        self.waits_for_past = False
        found_by_task, tasks, tallies = self.by_task, self.graph.tasks, self.tallies
        for task_id in self.graph.order:
            found = found_by_task.get(task_id)
            if found is None:
                tallies[task_id] = OPEN
            elif len(found) == 1 and found[0].state not in _NOT_STARTED:
                tallies[task_id] = SINGLE[found[0].state]
            else:
                self._plan_task(tasks[task_id], found)
                tallies[task_id] = tally(self._states(found))
        self._remove_strangers()

    def plan(self) -> RunPlan:
        """What was decided, with the verdict on the run if it has ended."""
        plan = RunPlan(expand=self.expand)
        for pk, state in self.changed.items():
            if state is T.SCHEDULED:
                plan.schedule.append(pk)
            else:
                plan.moves.append(Move(pk, state, self.notes.get(pk)))
        plan.missing = [task_id for task_id in self.graph.order if task_id not in self.by_task]
        if not plan.missing and not plan.expand:
            plan.verdict, plan.reason = self._verdict_on_run()
        return plan

    def _plan_task(self, task: TaskSpec, found: list[Instance]) -> None:
        fresh = []
        for one in found:
            state = self.changed.get(one.pk, one.state)
            if state not in _NOT_STARTED:
                continue
            if self.failing and not task.is_teardown:
                self._end(one, T.SKIPPED, "another task failed and this DAG has fail_fast")
            elif state in _PAUSED:
                self._resume(one)
            elif state is T.NONE:
                fresh.append(one)
        if fresh:
            self._plan_fresh(task, found, fresh)

    def _plan_fresh(self, task: TaskSpec, found: list[Instance], fresh: list[Instance]) -> None:
        verdict = self._judge(task)
        if task.mapping is not None and (verdict is Verdict.RUN or _is_literal(task.mapping)):
            fresh = self._map(task, task.mapping, found, fresh)
        if verdict is Verdict.RUN:
            self._start(task, fresh)
        elif verdict is not Verdict.WAIT and fresh:
            note = because(task, verdict, self.tallies)
            for one in fresh:
                self._end(one, _ENDS[verdict], note)

    def _judge(self, task: TaskSpec) -> Verdict:
        if len(task.upstream) < 2:
            return judge(task.trigger_rule, upstream_of(self.graph, self.tallies, task))
        # Neighbours often share their upstream tasks, and counting many of them is what a plan spends its time on.
        key = (task.trigger_rule, task.upstream)
        verdict = self.verdicts.get(key)
        if verdict is None:
            verdict = self.verdicts[key] = judge(task.trigger_rule, upstream_of(self.graph, self.tallies, task))
        return verdict

    def _resume(self, one: Instance) -> None:
        if one.retry_at is None or one.retry_at <= self.now:
            self.changed[one.pk] = T.SCHEDULED

    def _start(self, task: TaskSpec, fresh: Iterable[Instance]) -> None:
        for one in fresh:
            if self.previous.obstacle(self.graph, task, one.map_index) is not None:
                self.waits_for_past = True
            else:
                self.changed[one.pk] = T.SUCCESS if task.is_empty else T.SCHEDULED

    def _end(self, one: Instance, state: TaskState, note: str) -> None:
        self.changed[one.pk] = state
        self.notes[one.pk] = note

    def _map(
        self, task: TaskSpec, mapping: TaskMapping, found: list[Instance], fresh: list[Instance]
    ) -> list[Instance]:
        """Settle how many instances a mapped task has; return those of `fresh` that are its real ones."""
        length = self._length(mapping)
        if length is None:
            return []
        expanded = found[0].map_index != UNMAPPED
        if isinstance(length, TaskState):
            if expanded:
                return fresh
            state, note = length, "the task it is mapped over left no list behind"
        elif length > self.max_map_length:
            state, note = T.FAILED, f"it maps over {length} items; at most {self.max_map_length} are allowed"
        elif not length and not expanded:
            state, note = T.SKIPPED, "the list it maps over is empty"
        else:
            return self._fit(task, found, fresh, length)
        for one in fresh:
            self._end(one, state, note)
        return []

    def _fit(self, task: TaskSpec, found: list[Instance], fresh: list[Instance], length: int) -> list[Instance]:
        existing = 0 if found[0].map_index == UNMAPPED else len(found)
        if length > existing:
            self.expand.append(Expand(found[0].pk, task.task_id, length, first_new=max(existing, 1)))
        # A list that became shorter since the instances were made leaves some over.
        for one in fresh:
            if one.map_index >= length:
                self._end(one, T.REMOVED, f"the list it maps over now has {length} items")
        return [one for one in fresh if UNMAPPED < one.map_index < length]

    def _length(self, mapping: TaskMapping) -> int | TaskState | None:
        """How many instances a mapping makes. None: not known yet. A state: it never will be, and the task ends so."""
        lengths = [self._source_length(source) for source in mapping.sources]
        if None in lengths:
            return None
        endings = [length for length in lengths if isinstance(length, TaskState)]
        if endings:
            return T.UPSTREAM_FAILED if T.UPSTREAM_FAILED in endings else T.SKIPPED
        return math.prod(length for length in lengths if isinstance(length, int))

    def _source_length(self, source: MapSource) -> int | TaskState | None:
        if source.task_id is None:
            return source.length or 0
        upstream = self.tallies.get(source.task_id, OPEN)
        if upstream.done < upstream.total:
            return None
        if self.by_task[source.task_id][0].map_index != UNMAPPED:
            # An instance that returned nothing, or was skipped, is left out.
            return self.lengths.get((source.task_id, source.key), 0)
        length = self.lengths.get((source.task_id, source.key))
        if length is not None:
            return length
        return T.SKIPPED if upstream.skipped else T.UPSTREAM_FAILED

    def _remove_strangers(self) -> None:
        # Whatever has not started of a task this version of the DAG does not have cannot start any more.
        for task_id in self.by_task.keys() - self.graph.tasks.keys():
            for one in self.by_task[task_id]:
                if one.state in _NOT_STARTED:
                    self._end(one, T.REMOVED, "the DAG no longer has this task")

    def _verdict_on_run(self) -> tuple[RunState | None, str | None]:
        strangers = self.by_task.keys() - self.graph.tasks.keys()
        unended = [task_id for task_id, count in self.tallies.items() if count.done < count.total]
        if any(self._in_flight(task_id) for task_id in (*unended, *strangers)) or self.waits_for_past:
            return None, None
        if unended:
            return RunState.FAILED, deadlock(unended, self.graph, self.tallies)
        return self._verdict_on_ended()

    def _in_flight(self, task_id: str) -> bool:
        return any(state is not T.NONE and state not in TASK_ENDS for state in self._states(self.by_task[task_id]))

    def _verdict_on_ended(self) -> tuple[RunState, str | None]:
        leaves, tallies, tasks = self.graph.leaves, self.tallies, self.graph.tasks
        broken = [task_id for task_id in leaves if tallies[task_id].failed or tallies[task_id].upstream_failed]
        # With fail_fast the leaves are skipped, but the failure that caused it still decides.
        if not broken and not self.failing:
            return RunState.SUCCESS, None
        failed = [task_id for task_id in self.graph.order if tallies[task_id].failed]
        culprits = [task_id for task_id in failed if task_id in leaves or not tasks[task_id].is_teardown]
        return RunState.FAILED, f"{listed(culprits or sorted(broken))} failed"

    def _states(self, found: Sequence[Instance]) -> list[TaskState]:
        changed = self.changed
        return [changed.get(one.pk, one.state) for one in found]


def _is_literal(mapping: TaskMapping) -> bool:
    return all(source.task_id is None for source in mapping.sources)
