"""Arrows between tasks, groups, lists and labels."""

from collections.abc import Iterator
from typing import Any

import pytest

from stannel.errors import DagInvalid
from stannel.sdk import DAG, Label, TaskGroup, chain, chain_linear, cross_downstream, task
from stannel.sdk.operators import EmptyOperator


@pytest.fixture
def dag() -> Iterator[DAG]:
    with DAG("d") as made:
        yield made


def make(*names: str) -> list[Any]:
    return [EmptyOperator(task_id=name) for name in names]


def edges(dag: DAG) -> set[str]:
    return {f"{before}{task.task_id}" for task in dag.tasks for before in task.upstream_task_ids}


def test_arrows_point_both_ways_and_can_be_continued(dag: DAG) -> None:
    a, b, c = make("a", "b", "c")
    a >> b >> c
    assert edges(dag) == {"ab", "bc"}
    d, e = make("d", "e")
    e << d << c
    assert edges(dag) == {"ab", "bc", "cd", "de"}


def test_lists_stand_on_either_side(dag: DAG) -> None:
    a, b, c, d = make("a", "b", "c", "d")
    a >> [b, c] >> d
    assert edges(dag) == {"ab", "ac", "bd", "cd"}
    e, f = make("e", "f")
    [e, f] << d
    assert {"de", "df"} <= edges(dag)


def test_a_label_is_kept_with_the_arrow(dag: DAG) -> None:
    a, b, c = make("a", "b", "c")
    a >> Label("yes") >> b
    c << Label("no") << a
    assert edges(dag) == {"ab", "ac"}
    assert dag.edge_labels == {("a", "b"): "yes", ("a", "c"): "no"}


def test_a_label_between_lists_labels_every_arrow(dag: DAG) -> None:
    a, b, c, d = make("a", "b", "c", "d")
    [a, b] >> Label("x") >> [c, d]
    assert edges(dag) == {"ac", "ad", "bc", "bd"}
    assert set(dag.edge_labels.values()) == {"x"}
    assert len(dag.edge_labels) == 4


def test_chain_pairs_lists_of_the_same_length(dag: DAG) -> None:
    a, b, c, d, e, f = make("a", "b", "c", "d", "e", "f")
    chain(a, [b, c], [d, e], f)
    assert edges(dag) == {"ab", "ac", "bd", "ce", "df", "ef"}


def test_chain_refuses_lists_of_different_length_and_names_the_dag(dag: DAG) -> None:
    a, b, c = make("a", "b", "c")
    with pytest.raises(DagInvalid, match=r"'d'.*1 and 2"):
        chain([a], [b, c])


def test_chain_linear_connects_all_with_all(dag: DAG) -> None:
    a, b, c, d = make("a", "b", "c", "d")
    chain_linear([a, b], [c, d])
    assert edges(dag) == {"ac", "ad", "bc", "bd"}


def test_cross_downstream_takes_single_tasks_too(dag: DAG) -> None:
    a, b, c = make("a", "b", "c")
    cross_downstream([a, b], c)
    assert edges(dag) == {"ac", "bc"}


def test_a_group_is_connected_by_its_ends(dag: DAG) -> None:
    (a,) = make("a")
    with TaskGroup("g") as group:
        first, second = make("b", "c")
        first >> second
    (z,) = make("z")
    a >> group >> z
    assert first.upstream_task_ids == {"a"}
    assert z.upstream_task_ids == {"g.c"}


def test_outputs_stand_for_their_tasks(dag: DAG) -> None:
    @task
    def one() -> None: ...

    (z,) = make("z")
    chain(one(), z)
    assert z.upstream_task_ids == {"one"}


@pytest.mark.parametrize("thing", ["a text", 5, None])
def test_other_things_cannot_be_connected(dag: DAG, thing: Any) -> None:
    (a,) = make("a")
    with pytest.raises(TypeError, match="arrows"):
        a >> thing
