import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stannel.model.dag import DagSpec, MapSource, TaskSpec, TriggerRule
from stannel.model.dag import Mapping as TaskMapping
from stannel.model.plan import Expand, Instance, RunPlan
from stannel.model.states import TASK_ENDS, TASK_MOVES, RunState, TaskState
from stannel.scheduler.plan import Graph, plan_run

T, R = TaskState, TriggerRule
NOW = 1_000_000


def task(task_id: str, *upstream: str, **options: object) -> TaskSpec:
    return TaskSpec(task_id=task_id, upstream=upstream, **options)  # type: ignore[arg-type]


def dag(*tasks: TaskSpec, **options: object) -> DagSpec:
    return DagSpec(dag_id="d", tasks=tasks, **options)  # type: ignore[arg-type]


def over(*task_ids: str, literal: int | None = None) -> TaskMapping:
    sources = [MapSource(argument=f"arg_{one}", task_id=one) for one in task_ids]
    if literal is not None:
        sources.append(MapSource(argument="literal", length=literal))
    return TaskMapping(tuple(sources))


def instances(text: str) -> list[Instance]:
    """`a=success b m[0]=running m[1]=up_for_retry@5`: no state means none, `@` gives the retry moment."""
    found = []
    for pk, word in enumerate(text.split(), start=1):
        match = re.fullmatch(r"(\w+)(?:\[(\d+)\])?(?:=(\w+))?(?:@(\d+))?", word)
        assert match, word
        name, index, state, retry_at = match.groups()
        found.append(
            Instance(
                pk=pk,
                task_id=name,
                map_index=-1 if index is None else int(index),
                state=T(state or "none"),
                retry_at=None if retry_at is None else int(retry_at),
            )
        )
    return found


def plan(
    spec: DagSpec,
    text: str,
    *,
    lengths: Mapping[tuple[str, str], int] | None = None,
    past: str | None = None,
    max_map_length: int = 10,
) -> RunPlan:
    before = None if past is None else {(one.task_id, one.map_index): one.state for one in instances(past)}
    return plan_run(
        Graph(spec), instances(text), now=NOW, lengths=lengths or {}, past=before, max_map_length=max_map_length
    )


def outcome(spec: DagSpec, text: str, made: RunPlan) -> str:
    """The states after the plan, in the notation of `instances`; only those it changed."""
    after = dict.fromkeys(made.schedule, "scheduled") | {move.pk: move.state.value for move in made.moves}
    words = []
    for one in instances(text):
        if one.pk in after:
            index = "" if one.map_index < 0 else f"[{one.map_index}]"
            words.append(f"{one.task_id}{index}={after[one.pk]}")
    return " ".join(words)


CHAIN = dag(task("a"), task("b", "a"), task("c", "b"))
DIAMOND = dag(task("a"), task("b", "a"), task("c", "a"), task("d", "b", "c"))
EMPTY = dag(task("a", is_empty=True), task("b", "a", is_empty=True), task("c", "b"))
RECOVERY = dag(task("a"), task("b", "a"), task("fix", "b", trigger_rule=R.ALL_FAILED))
SETUP = dag(
    task("setup", is_setup=True),
    task("work", "setup"),
    task("tear", "setup", "work", is_teardown=True, trigger_rule=R.ALL_DONE_SETUP_SUCCESS),
)
STRICT = dag(*SETUP.tasks[:2], task("tear", "setup", "work", is_teardown=True, on_failure_fail_dagrun=True))
FAST = dag(
    task("a"), task("b"), task("c", "b"), task("tear", "c", is_teardown=True, trigger_rule=R.ALL_DONE), fail_fast=True
)

GOING, SUCCESS, FAILED = None, RunState.SUCCESS, RunState.FAILED


@pytest.mark.parametrize(
    ("spec", "before", "changes", "verdict"),
    [
        # A chain moves one by one; several ready tasks move together.
        (CHAIN, "a b c", "a=scheduled", GOING),
        (CHAIN, "a=running b c", "", GOING),
        (CHAIN, "a=success b c", "b=scheduled", GOING),
        (CHAIN, "a=success b=success c=success", "", SUCCESS),
        (DIAMOND, "a=success b c d", "b=scheduled c=scheduled", GOING),
        (DIAMOND, "a=success b=success c=running d", "", GOING),
        # Skips, failures and empty tasks run through the whole graph in one plan.
        (CHAIN, "a=failed b c", "b=upstream_failed c=upstream_failed", FAILED),
        (CHAIN, "a=skipped b c", "b=skipped c=skipped", SUCCESS),
        (DIAMOND, "a=success b=failed c=running d", "d=upstream_failed", GOING),
        (EMPTY, "a b c", "a=success b=success c=scheduled", GOING),
        (EMPTY, "a=success b=success c=failed", "", FAILED),
        (RECOVERY, "a=failed b fix", "b=upstream_failed fix=scheduled", GOING),
        (RECOVERY, "a=success b=success fix", "fix=skipped", SUCCESS),
        (RECOVERY, "a=failed b=upstream_failed fix=success", "", SUCCESS),
        # Retries and reschedules come back when their moment is there.
        (CHAIN, f"a=up_for_retry@{NOW} b c", "a=scheduled", GOING),
        (CHAIN, f"a=up_for_retry@{NOW + 1} b c", "", GOING),
        (CHAIN, f"a=up_for_reschedule@{NOW - 1} b c", "a=scheduled", GOING),
        (CHAIN, "a=up_for_retry b c", "a=scheduled", GOING),
        (CHAIN, "a=deferred b c", "", GOING),
        (CHAIN, "a=queued b c", "", GOING),
        (CHAIN, "a=scheduled b c", "", GOING),
        # Teardowns: they run after a failure and do not decide the run, unless asked to.
        (SETUP, "setup=success work=failed tear", "tear=scheduled", GOING),
        (SETUP, "setup=success work=failed tear=success", "", FAILED),
        (SETUP, "setup=success work=success tear=failed", "", SUCCESS),
        (SETUP, "setup=failed work tear", "work=upstream_failed tear=upstream_failed", FAILED),
        (SETUP, "setup=skipped work tear", "work=skipped tear=skipped", SUCCESS),
        (STRICT, "setup=success work=success tear=failed", "", FAILED),
        (STRICT, "setup=success work=failed tear=success", "", FAILED),
        # fail_fast: what has not started is skipped, teardowns excepted; the run has failed all the same.
        (FAST, "a=failed b c tear", "b=skipped c=skipped tear=scheduled", GOING),
        (FAST, "a=failed b=scheduled c tear", "b=skipped c=skipped tear=scheduled", GOING),
        (FAST, f"a=failed b=up_for_retry@{NOW + 9} c tear", "b=skipped c=skipped tear=scheduled", GOING),
        (FAST, "a=failed b=running c tear", "c=skipped tear=scheduled", GOING),
        (FAST, "a=failed b=skipped c=skipped tear=success", "", FAILED),
        (FAST, "a=success b=success c=success tear=failed", "", SUCCESS),
        (dag(task("a"), task("b", "a"), fail_fast=True), "a=failed b", "b=skipped", FAILED),
        # A newer version of the DAG: tasks that are gone, tasks that are new.
        (CHAIN, "a b c old", "a=scheduled old=removed", GOING),
        (CHAIN, "a=success b=success c=success old=scheduled", "old=removed", SUCCESS),
        (CHAIN, "a=success b=success c=success old=failed", "", SUCCESS),
        (CHAIN, "a=success b=success c=success old=running", "", GOING),
        (CHAIN, "a=success c=success", "", GOING),
        (dag(), "", "", SUCCESS),
        (dag(), "old", "old=removed", SUCCESS),
    ],
)
def test_a_plan_moves_everything_that_can_move(
    spec: DagSpec, before: str, changes: str, verdict: RunState | None
) -> None:
    made = plan(spec, before)
    assert outcome(spec, before, made) == changes
    assert made.verdict is verdict


def test_new_tasks_are_reported_as_missing_and_hold_their_followers_up() -> None:
    made = plan(CHAIN, "a=success c")
    assert made.missing == ["b"]
    assert not made.schedule


def test_a_retry_is_scheduled_when_it_is_due_and_not_before() -> None:
    spec = dag(task("a"), task("b"), task("c"))
    made = plan(spec, f"a=up_for_retry@{NOW + 50} b=up_for_reschedule@{NOW + 20} c=up_for_retry@{NOW - 1}")
    assert made.schedule == [3]


def test_a_run_that_failed_names_the_tasks_that_failed_not_those_that_followed() -> None:
    assert plan(CHAIN, "a=success b=failed c").reason == "b failed"
    assert plan(SETUP, "setup=success work=failed tear=failed").reason == "work failed"
    assert plan(CHAIN, "a=success b=success c=success").reason is None


def test_what_ended_without_running_says_why() -> None:
    notes = {move.pk: move.note for move in plan(CHAIN, "a=failed b c old").moves}
    assert notes == {2: "a failed", 3: "b failed", 4: "the DAG no longer has this task"}
    assert (
        plan(RECOVERY, "a=success b=success fix").moves[0].note == "its trigger rule all_failed cannot be met any more"
    )
    assert plan(CHAIN, "a=skipped b c").moves[0].note == "a was skipped"


@pytest.mark.parametrize(
    ("spec", "before", "part"),
    [
        (dag(task("a", "b"), task("b", "a")), "a b", "a waits for b and b waits for a"),
        (dag(task("a", "ghost")), "a", "a waits for ghost (unknown)"),
    ],
)
def test_a_run_in_which_nothing_can_move_fails_and_names_what_waits(spec: DagSpec, before: str, part: str) -> None:
    made = plan(spec, before)
    assert made.verdict is RunState.FAILED
    assert made.reason is not None
    assert part in made.reason


# Mapped tasks.

MAPPED = dag(task("list"), task("m", "list", mapping=over("list")), task("sum", "m"))
LITERAL = dag(task("a"), task("m", "a", mapping=over(literal=3)), task("sum", "m"))
RETURN = "return_value"


def test_a_literal_is_expanded_at_once_and_its_instances_wait_for_the_rule() -> None:
    made = plan(LITERAL, "a m sum")
    assert made.expand == [Expand(pk=2, task_id="m", length=3)]
    assert made.schedule == [1]
    assert outcome(LITERAL, "", plan(LITERAL, "a=running m[0] m[1] m[2] sum")) == ""
    text = "a=success m[0] m[1] m[2] sum"
    assert outcome(LITERAL, text, plan(LITERAL, text)) == "m[0]=scheduled m[1]=scheduled m[2]=scheduled"


def test_a_list_from_a_task_is_expanded_when_the_task_has_ended() -> None:
    assert plan(MAPPED, "list=running m sum", lengths={("list", RETURN): 4}).expand == []
    made = plan(MAPPED, "list=success m sum", lengths={("list", RETURN): 4})
    assert made.expand == [Expand(pk=2, task_id="m", length=4)]
    assert (made.schedule, made.moves, made.verdict) == ([], [], None)


def test_several_sources_make_their_product() -> None:
    spec = dag(task("x"), task("y"), task("m", "x", "y", mapping=over("x", "y", literal=2)))
    made = plan(spec, "x=success y=success m", lengths={("x", RETURN): 2, ("y", RETURN): 3}, max_map_length=12)
    assert made.expand[0].length == 12


def test_a_task_mapped_over_a_mapped_task_has_as_many_instances_as_that_left_values() -> None:
    spec = dag(*MAPPED.tasks[:2], task("n", "m", mapping=over("m")))
    made = plan(spec, "list=success m[0]=success m[1]=success m[2]=success n", lengths={("m", RETURN): 2})
    assert made.expand == [Expand(pk=5, task_id="n", length=2)]


@pytest.mark.parametrize(
    ("lengths", "before", "changes", "note", "verdict"),
    [
        ({("list", RETURN): 0}, "list=success m sum", "m=skipped sum=skipped", "is empty", SUCCESS),
        ({("list", RETURN): 11}, "list=success m sum", "m=failed sum=upstream_failed", "at most 10", FAILED),
        ({}, "list=success m sum", "m=upstream_failed sum=upstream_failed", "left no list", FAILED),
        ({("list", "other"): 3}, "list=success m sum", "m=upstream_failed sum=upstream_failed", "left no list", FAILED),
        ({}, "list=skipped m sum", "m=skipped sum=skipped", "list was skipped", SUCCESS),
        ({}, "list=failed m sum", "m=upstream_failed sum=upstream_failed", "list failed", FAILED),
    ],
)
def test_a_mapped_task_without_a_usable_list_ends_with_a_note(
    lengths: dict[tuple[str, str], int], before: str, changes: str, note: str, verdict: RunState
) -> None:
    made = plan(MAPPED, before, lengths=lengths)
    assert outcome(MAPPED, before, made) == changes
    assert note in str(made.moves[0].note)
    assert made.verdict is verdict


def test_a_task_mapped_over_a_skipped_one_is_skipped_even_if_its_rule_would_run() -> None:
    spec = dag(task("list"), task("m", "list", mapping=over("list"), trigger_rule=R.ALL_DONE))
    assert plan(spec, "list=skipped m").moves[0].state is T.SKIPPED
    assert plan(spec, "list=failed m").moves[0].state is T.UPSTREAM_FAILED


def test_a_rule_that_does_not_wait_still_waits_for_the_list() -> None:
    spec = dag(task("list"), task("m", "list", mapping=over("list"), trigger_rule=R.ALWAYS))
    made = plan(spec, "list=running m")
    assert (made.expand, made.moves, made.verdict) == ([], [], None)


def test_followers_of_a_mapped_task_count_all_its_instances() -> None:
    text = "list=success m[0]=success m[1]=running sum"
    assert outcome(MAPPED, text, plan(MAPPED, text)) == ""
    text = "list=success m[0]=success m[1]=success sum"
    assert outcome(MAPPED, text, plan(MAPPED, text)) == "sum=scheduled"
    text = "list=success m[0]=success m[1]=failed sum"
    assert outcome(MAPPED, text, plan(MAPPED, text)) == "sum=upstream_failed"


def test_a_cleared_mapped_task_fits_itself_to_a_list_of_another_length() -> None:
    text = "list=success m[0] m[1] m[2] sum"
    assert outcome(MAPPED, text, plan(MAPPED, text, lengths={("list", RETURN): 1})) == (
        "m[0]=scheduled m[1]=removed m[2]=removed"
    )
    longer = plan(MAPPED, text, lengths={("list", RETURN): 5})
    assert longer.expand == [Expand(pk=2, task_id="m", length=5, first_new=3)]
    assert longer.schedule == [2, 3, 4]


def test_instances_that_exist_run_even_if_nobody_says_how_long_the_list_is() -> None:
    text = "list=success m[0] m[1] sum"
    assert outcome(MAPPED, text, plan(MAPPED, text)) == "m[0]=scheduled m[1]=scheduled"


def test_a_list_that_is_too_long_stops_a_run_with_fail_fast_in_the_same_plan() -> None:
    spec = dag(*MAPPED.tasks, task("first", "list"), fail_fast=True)
    text = "list=success m sum first"
    made = plan(spec, text, lengths={("list", RETURN): 11})
    assert outcome(spec, text, made) == "m=failed sum=upstream_failed first=skipped"
    assert made.verdict is RunState.FAILED


# The previous run.

PAST = dag(task("a", depends_on_past=True), task("b", "a"))
PAST_AND_DOWN = dag(task("a", wait_for_downstream=True), task("b", "a"), task("c", "b"))
PAST_MAPPED = dag(task("m", depends_on_past=True, mapping=over(literal=2)))


@pytest.mark.parametrize(
    ("spec", "before", "past", "changes"),
    [
        (PAST, "a b", None, "a=scheduled"),
        (PAST, "a b", "a=success b=failed", "a=scheduled"),
        (PAST, "a b", "a=skipped b=success", "a=scheduled"),
        (PAST, "a b", "a=failed b=upstream_failed", ""),
        (PAST, "a b", "a=running b", ""),
        (PAST, "a b", "b=success", "a=scheduled"),
        (CHAIN, "a b c", "a=failed b c", "a=scheduled"),
        (PAST_AND_DOWN, "a b c", "a=success b=success c=failed", "a=scheduled"),
        (PAST_AND_DOWN, "a b c", "a=success b=running c", ""),
        (PAST_AND_DOWN, "a b c", "a=failed b=success c=success", ""),
        (PAST_MAPPED, "m[0] m[1]", "m[0]=failed m[1]=success", "m[1]=scheduled"),
        (PAST_MAPPED, "m[0] m[1]", "m", ""),
        (PAST_MAPPED, "m[0] m[1]", "m[0]=success", "m[0]=scheduled m[1]=scheduled"),
    ],
)
def test_a_task_that_depends_on_the_past_waits_for_the_previous_run(
    spec: DagSpec, before: str, past: str | None, changes: str
) -> None:
    made = plan(spec, before, past=past)
    assert outcome(spec, before, made) == changes
    assert made.verdict is None, "waiting for another run is not a deadlock"


# Properties.


@st.composite
def runs(draw: st.DrawFn) -> tuple[DagSpec, list[Instance], dict[tuple[str, str], int]]:
    count = draw(st.integers(1, 7))
    names = [f"t{number}" for number in range(count)]
    tasks, rows, lengths = [], [], {}
    for number, name in enumerate(names):
        upstream = tuple(draw(st.lists(st.sampled_from(names[:number]), unique=True))) if number else ()
        mapping = draw(st.sampled_from([None, None, over(literal=2), over(*upstream[:1], literal=1)]))
        tasks.append(
            task(
                name,
                *upstream,
                trigger_rule=draw(st.sampled_from(TriggerRule)),
                is_empty=draw(st.booleans()),
                mapping=mapping,
                is_setup=draw(st.booleans()),
            )
        )
        lengths[name, RETURN] = draw(st.integers(0, 3))
        states = [draw(st.sampled_from(TaskState))] if mapping is None else [T.NONE]
        rows += [Instance(pk=number, task_id=name, map_index=-1, state=state) for state in states]
    return dag(*tasks, fail_fast=draw(st.booleans())), rows, lengths


@given(runs())
def test_every_change_is_in_the_table_of_moves(
    run: tuple[DagSpec, list[Instance], dict[tuple[str, str], int]],
) -> None:
    spec, rows, lengths = run
    before = {one.pk: one.state for one in rows}
    made = plan_run(Graph(spec), rows, now=NOW, lengths=lengths, past=None, max_map_length=2)
    assert all(T.SCHEDULED in TASK_MOVES[before[pk]] for pk in made.schedule)
    assert all(move.state in TASK_MOVES[before[move.pk]] for move in made.moves)
    touched = [*made.schedule, *(move.pk for move in made.moves)]
    assert len(touched) == len(set(touched))


def apply(rows: list[Instance], made: RunPlan) -> list[Instance]:
    after = dict.fromkeys(made.schedule, T.SCHEDULED) | {move.pk: move.state for move in made.moves}
    found = [Instance(one.pk, one.task_id, one.map_index, after.get(one.pk, one.state)) for one in rows]
    for expand in made.expand:
        first = next(one for one in found if one.pk == expand.pk)
        first.map_index = 0
        found += [
            Instance(1000 * (expand.pk + 1) + index, expand.task_id, index, T.NONE)
            for index in range(expand.first_new, expand.length)
        ]
    return found


@given(runs(), st.randoms(use_true_random=False))
def test_every_run_reaches_a_verdict_and_a_second_plan_adds_nothing(
    run: tuple[DagSpec, list[Instance], dict[tuple[str, str], int]], random: object
) -> None:
    spec, rows, lengths = run
    graph = Graph(spec)
    for _ in range(100):
        made = plan_run(graph, rows, now=NOW, lengths=lengths, past=None, max_map_length=2)
        rows = apply(rows, made)
        if made.verdict is not None:
            break
        if not made.expand:
            again = plan_run(graph, rows, now=NOW, lengths=lengths, past=None, max_map_length=2)
            assert (again.schedule, again.moves, again.expand) == ([], [], [])
        for one in rows:
            if one.state is not T.NONE and one.state not in TASK_ENDS:
                one.state = random.choice([T.SUCCESS, T.FAILED, T.SKIPPED])  # type: ignore[attr-defined]
    assert made.verdict is not None
    assert all(one.state in TASK_ENDS for one in rows)
