"""Why a task has not started, or never will, as a sentence: what the screen says instead of nothing. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from stannel.model.dag import TaskSpec
from stannel.model.ids import UNMAPPED
from stannel.model.plan import Instance
from stannel.model.states import TASK_ENDS, TaskState
from stannel.scheduler.graph import OPEN, Graph, Past, PreviousRun, Tallies, by_task, tally, upstream_of
from stannel.scheduler.rules import Verdict, judge


def why_waiting(
    graph: Graph,
    instances: Iterable[Instance],
    task_id: str,
    *,
    map_index: int = UNMAPPED,
    past: Past | None = None,
) -> str:
    """A sentence that says what a task instance waits for, or how it stands when it is not waiting for other tasks."""
    found = by_task(instances)
    label = task_id if map_index == UNMAPPED else f"{task_id}[{map_index}]"
    task = graph.tasks.get(task_id)
    if task is None:
        return f"{label} is not part of this DAG any more, so it will not run."
    state = next((one.state for one in found.get(task_id, ()) if one.map_index == map_index), None)
    if state is not None and state is not TaskState.NONE:
        return f"{label} is {_spoken(state)}."
    tallies = {key: tally([one.state for one in several]) for key, several in found.items()}
    if judge(task.trigger_rule, upstream_of(graph, tallies, task)) is Verdict.WAIT:
        upstream = [f"{one} ({_stand(graph, found, one)})" for one in _open_upstream(task, tallies)]
        return f"{label} waits for {listed(upstream)}; its trigger rule is {task.trigger_rule}."
    obstacle = PreviousRun(past).obstacle(graph, task, map_index)
    if past is not None and obstacle is not None:
        return f"{label} waits for the previous run, where {obstacle} is {_past_states(past, obstacle)}."
    return f"{label} waits for nothing; the scheduler takes it up next."


def deadlock(task_ids: Iterable[str], graph: Graph, tallies: Tallies) -> str:
    """Which tasks of a run can never start, and what each waits for."""
    stuck = []
    for task_id in task_ids:
        names = [
            one if one in graph.tasks else f"{one} (unknown)" for one in _open_upstream(graph.tasks[task_id], tallies)
        ]
        stuck.append(f"{task_id} waits for {listed(names)}" if names else task_id)
    return f"nothing can move any more: {listed(stuck)}"


def because(task: TaskSpec, verdict: Verdict, tallies: Tallies) -> str:
    """Why a trigger rule ended a task without running it."""
    met = [(one, tallies.get(one, OPEN)) for one in task.upstream]
    failed = next((one for one, count in met if count.failed or count.upstream_failed), None)
    skipped = next((one for one, count in met if count.skipped), None)
    if verdict is Verdict.UPSTREAM_FAILED and failed is not None:
        return f"{failed} failed"
    if verdict is Verdict.SKIP and skipped is not None:
        return f"{skipped} was skipped"
    return f"its trigger rule {task.trigger_rule} cannot be met any more"


def listed(parts: Sequence[str], limit: int = 5) -> str:
    """The parts as one phrase: `a, b and c`, or `a, b, c, d, e and 7 more`."""
    if len(parts) > limit:
        return f"{', '.join(parts[:limit])} and {len(parts) - limit} more"
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _open_upstream(task: TaskSpec, tallies: Tallies) -> list[str]:
    return [one for one in task.upstream if (count := tallies.get(one, OPEN)).done < count.total]


def _stand(graph: Graph, found: Mapping[str, list[Instance]], task_id: str) -> str:
    if task_id not in graph.tasks:
        return "unknown"
    states = [one.state for one in found.get(task_id, ())]
    if len(states) < 2:
        return _spoken(states[0]) if states else "not created yet"
    counts = Counter(_spoken(state) for state in states if state not in TASK_ENDS)
    open_ones = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    return f"{len(states) - counts.total()} of {len(states)} done, {open_ones}"


def _past_states(past: Past, task_id: str) -> str:
    unsettled = {_spoken(state) for (one, _), state in past.items() if one == task_id} - {"success", "skipped"}
    return listed(sorted(unsettled))


def _spoken(state: TaskState) -> str:
    return "not started" if state is TaskState.NONE else state.value.replace("_", " ")
