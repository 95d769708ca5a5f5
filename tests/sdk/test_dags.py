"""DAGs and `@dag`."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from stannel.errors import DagInvalid, DuplicateTaskId
from stannel.sdk import DAG, TaskGroup, dag, task
from stannel.sdk.exceptions import TaskNotFound
from stannel.sdk.operators import EmptyOperator


def test_tasks_made_inside_the_block_belong_to_the_dag() -> None:
    with DAG("outer") as outer:
        EmptyOperator(task_id="a")
        with DAG("inner") as inner:
            EmptyOperator(task_id="b")
        EmptyOperator(task_id="c")
    assert outer.task_ids == ["a", "c"]
    assert inner.task_ids == ["b"]


def test_a_dag_can_be_given_as_an_argument() -> None:
    made = DAG("d")
    EmptyOperator(task_id="a", dag=made)
    assert made.task_ids == ["a"]


def test_the_decorated_function_names_and_documents_the_dag() -> None:
    @dag(schedule=None, tags=["x"])
    def nightly() -> None:
        """What it is for."""
        EmptyOperator(task_id="a")

    made = nightly()
    assert (made.dag_id, made.doc_md, made.tags, made.task_ids) == ("nightly", "What it is for.", {"x"}, ["a"])


def test_the_decorator_takes_an_id_and_arguments_become_params() -> None:
    @dag("renamed", params={"b": 2})
    def function(a: int = 1) -> None:
        pass

    made = function(a=5)
    assert made.dag_id == "renamed"
    assert dict(made.params) == {"a": 5, "b": 2}


@pytest.mark.parametrize("dag_id", ["", "has space", "slash/ed", "x" * 251, None, 7])
def test_a_bad_id_is_refused_with_the_file(dag_id: object) -> None:
    with pytest.raises(DagInvalid) as caught:
        DAG(dag_id)  # type: ignore[arg-type]
    assert __file__ in str(caught.value)


def test_a_second_task_of_the_same_id_is_refused_with_dag_task_and_file() -> None:
    with DAG("d"):
        EmptyOperator(task_id="a")
        with pytest.raises(DuplicateTaskId) as caught:
            EmptyOperator(task_id="a")
    assert (caught.value.dag_id, caught.value.task_id, caught.value.file) == ("d", "a", __file__)


def test_a_task_cannot_move_to_another_dag() -> None:
    with DAG("one"):
        a = EmptyOperator(task_id="a")
    with pytest.raises(DagInvalid, match=r"'a'.*cannot also be used in DAG 'two'"):
        DAG("two").add_task(a)


def test_tasks_of_two_dags_cannot_be_connected() -> None:
    with DAG("one"):
        a = EmptyOperator(task_id="a")
    with DAG("two"):
        b = EmptyOperator(task_id="b")
    with pytest.raises(DagInvalid, match=r"'a'.*'b' of DAG 'two'"):
        a >> b


def test_a_task_without_a_dag_joins_that_of_its_neighbour() -> None:
    a = EmptyOperator(task_id="a")
    with DAG("d") as made:
        b = EmptyOperator(task_id="b")
    a >> b
    assert a.dag is made
    assert b.upstream_task_ids == {"a"}


def test_an_unknown_task_gets_a_suggestion() -> None:
    with DAG("d") as made:
        EmptyOperator(task_id="extract")
    with pytest.raises(TaskNotFound, match="did you mean extract"):
        made.get_task("extrakt")


@pytest.mark.parametrize("schedule", ["* * *", "@fortnightly", 5, timedelta(0)])
def test_a_schedule_that_cannot_be_one_is_refused_with_the_dag(schedule: object) -> None:
    with pytest.raises(DagInvalid, match=r"'d'.*schedule"):
        DAG("d", schedule=schedule)


def test_dates_without_a_zone_are_utc_and_texts_are_read() -> None:
    made = DAG("d", start_date=datetime(2026, 1, 1), default_args={"end_date": "2026-02-01"})
    assert made.start_date == datetime(2026, 1, 1, tzinfo=UTC)
    assert made.end_date == datetime(2026, 2, 1, tzinfo=UTC)
    zoned = DAG("d", start_date=datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")))
    assert str(zoned.timezone) == "Europe/Berlin"


def test_a_dag_knows_its_file() -> None:
    assert DAG("d").fileloc == __file__


def test_roots_and_leaves_are_the_ends_of_the_graph() -> None:
    with DAG("d") as made:
        a, b, c = (EmptyOperator(task_id=name) for name in "abc")
        a >> b >> c
    assert made.roots == [a]
    assert made.leaves == [c]


def test_a_group_and_a_task_cannot_share_an_id() -> None:
    with DAG("d"):
        EmptyOperator(task_id="same")
        with pytest.raises(DagInvalid, match="'same'"):
            TaskGroup("same")


def test_params_of_default_args_are_the_dags() -> None:
    made = DAG("d", default_args={"params": {"a": 1}}, params={"b": 2})
    assert dict(made.params) == {"a": 1, "b": 2}


def test_a_task_called_twice_gets_a_new_id() -> None:
    with DAG("d") as made:

        @task
        def step() -> None: ...

        for _ in range(3):
            step()
        with TaskGroup("g"):
            step()
            step()
    assert made.task_ids == ["step", "step__1", "step__2", "g.step", "g.step__1"]
