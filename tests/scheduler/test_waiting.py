import pytest

from stannel.model.dag import DagSpec, TaskSpec, TriggerRule
from stannel.model.plan import Instance
from stannel.model.states import TaskState
from stannel.scheduler.graph import Graph
from stannel.scheduler.waiting import listed, why_waiting

T = TaskState
GRAPH = Graph(
    DagSpec(
        dag_id="d",
        tasks=(
            TaskSpec(task_id="extract", depends_on_past=True),
            TaskSpec(task_id="load", upstream=("extract", "audit")),
            TaskSpec(task_id="audit"),
            TaskSpec(task_id="notify", upstream=("load", "audit"), trigger_rule=TriggerRule.ONE_SUCCESS),
        ),
    )
)


def made(**states: TaskState | list[TaskState]) -> list[Instance]:
    rows: list[Instance] = []
    for task_id, given in states.items():
        several = given if isinstance(given, list) else [given]
        rows += [
            Instance(len(rows), task_id, index if isinstance(given, list) else -1, state)
            for index, state in enumerate(several)
        ]
    return rows


@pytest.mark.parametrize(
    ("rows", "task_id", "sentence"),
    [
        (
            made(extract=T.RUNNING, load=T.NONE, audit=T.SUCCESS),
            "load",
            "load waits for extract (running); its trigger rule is all_success.",
        ),
        (
            made(extract=T.RUNNING, load=T.NONE, audit=T.NONE),
            "load",
            "load waits for extract (running) and audit (not started); its trigger rule is all_success.",
        ),
        (
            made(extract=[T.SUCCESS, T.UP_FOR_RETRY, T.RUNNING, T.RUNNING], load=T.NONE, audit=T.SUCCESS),
            "load",
            "load waits for extract (1 of 4 done, 2 running, 1 up for retry); its trigger rule is all_success.",
        ),
        (
            made(load=T.NONE, audit=T.SUCCESS),
            "load",
            "load waits for extract (not created yet); its trigger rule is all_success.",
        ),
        (made(load=T.NONE, audit=T.SUCCESS), "notify", "notify waits for nothing; the scheduler takes it up next."),
        (made(load=T.QUEUED), "load", "load is queued."),
        (made(old=T.NONE), "old", "old is not part of this DAG any more, so it will not run."),
    ],
)
def test_a_waiting_task_says_what_it_waits_for(rows: list[Instance], task_id: str, sentence: str) -> None:
    assert why_waiting(GRAPH, rows, task_id) == sentence


def test_an_instance_of_a_mapped_task_is_named_by_its_index() -> None:
    rows = made(extract=T.SUCCESS, audit=T.DEFERRED, load=[T.NONE, T.SKIPPED])
    assert why_waiting(GRAPH, rows, "load", map_index=0).startswith("load[0] waits for audit (deferred)")
    assert why_waiting(GRAPH, rows, "load", map_index=1) == "load[1] is skipped."


def test_a_task_that_depends_on_the_past_names_what_holds_it_up_there() -> None:
    rows = made(extract=T.NONE)
    past = {("extract", -1): T.FAILED, ("load", -1): T.UPSTREAM_FAILED}
    assert why_waiting(GRAPH, rows, "extract", past=past) == (
        "extract waits for the previous run, where extract is failed."
    )
    assert why_waiting(GRAPH, rows, "extract", past={("extract", -1): T.SUCCESS}).startswith(
        "extract waits for nothing"
    )
    assert why_waiting(GRAPH, rows, "extract", past=None).startswith("extract waits for nothing")


@pytest.mark.parametrize(
    ("parts", "phrase"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        (list("abcdefg"), "a, b, c, d, e and 2 more"),
    ],
)
def test_a_long_list_is_cut_short(parts: list[str], phrase: str) -> None:
    assert listed(parts) == phrase
