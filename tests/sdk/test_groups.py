"""Task groups and `@task_group`."""

import pytest

from stannel.errors import DagInvalid, InvalidId
from stannel.sdk import DAG, TaskGroup, task, task_group
from stannel.sdk.operators import EmptyOperator


def test_names_carry_the_groups_they_lie_in() -> None:
    with DAG("d") as dag, TaskGroup("outer"):
        EmptyOperator(task_id="a")
        with TaskGroup("inner", prefix_group_id=False):
            EmptyOperator(task_id="b")
        with TaskGroup("deep"):
            EmptyOperator(task_id="c")
    assert dag.task_ids == ["outer.a", "outer.b", "outer.deep.c"]
    assert dag.get_task("outer.deep.c").group_id == "outer.deep"


def test_the_nearest_default_args_win() -> None:
    with DAG("d", default_args={"retries": 1, "owner": "dag"}):
        with TaskGroup("g", default_args={"retries": 2, "queue": "q"}):
            a = EmptyOperator(task_id="a")
            b = EmptyOperator(task_id="b", retries=3)
        c = EmptyOperator(task_id="c")
    assert (a.retries, a.owner, a.queue) == (2, "dag", "q")  # type: ignore[attr-defined]
    assert b.retries == 3
    assert (c.retries, c.owner) == (1, "dag")


def test_a_decorated_group_is_made_on_each_call() -> None:
    with DAG("d") as dag:

        @task_group(tooltip="both")
        def pair() -> None:
            @task
            def x() -> None: ...

            x()

        pair()
        pair()
        pair.override(group_id="named")()
    assert dag.task_ids == ["pair.x", "pair__1.x", "named.x"]
    assert dag.task_groups["pair"].tooltip == "both"


def test_a_decorated_group_passes_outputs_through_and_stands_in_arrows() -> None:
    with DAG("d"):

        @task
        def one() -> int:
            return 1

        @task
        def add(x: int) -> int:
            return x + 1

        @task_group
        def twice(x: int) -> object:
            return add(add(x))  # type: ignore[arg-type]

        last = add.override(task_id="last")(twice(one()))

        @task_group
        def silent() -> None:
            EmptyOperator(task_id="e")

        end = EmptyOperator(task_id="end")
        silent() >> end
    assert last.operator.upstream_task_ids == {"twice.add__1"}
    assert end.upstream_task_ids == {"silent.e"}


def test_a_group_cannot_be_mapped_yet_and_says_so() -> None:
    @task_group
    def group(x: int) -> None: ...

    with pytest.raises(NotImplementedError, match="'group' cannot be mapped yet"):
        group.expand(x=[1])


def test_a_group_needs_a_dag_and_a_good_name() -> None:
    with pytest.raises(RuntimeError, match="belongs to no DAG"):
        TaskGroup("g")
    with DAG("d"):
        with pytest.raises(InvalidId):
            TaskGroup("not good")
        TaskGroup("g")
        with pytest.raises(DagInvalid, match="'g'"):
            TaskGroup("g")


def test_a_teardown_does_not_hold_up_what_follows_its_group() -> None:
    with DAG("d"):
        with TaskGroup("g") as group:
            setup, work, teardown = (EmptyOperator(task_id=name) for name in ("setup", "work", "teardown"))
            setup >> work >> teardown.as_teardown(setups=setup)
        after = EmptyOperator(task_id="after")
        group >> after
    assert after.upstream_task_ids == {"g.work"}
    assert setup.is_setup
    assert teardown.upstream_task_ids == {"g.setup", "g.work"}
