"""`BaseOperator`: its arguments, its defaults and what it refuses."""

from datetime import timedelta
from typing import Any

import pytest

from stannel.errors import DagInvalid, InvalidId
from stannel.sdk import DAG, BaseOperator, TriggerRule, task
from stannel.sdk.operators import BashOperator, EmptyOperator, PythonOperator


class Greet(BaseOperator):
    template_fields = ("name",)

    def __init__(self, name: str, *, conn_id: str = "default_conn", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.name, self.conn_id = name, conn_id


def test_default_args_reach_an_operators_own_arguments() -> None:
    with DAG("d", default_args={"conn_id": "special", "retries": 2, "unrelated": 1}):
        greet = Greet(task_id="g", name="x")
    assert (greet.conn_id, greet.retries) == ("special", 2)


def test_default_args_fill_required_arguments_too() -> None:
    with DAG("d", default_args={"name": "from defaults"}):
        assert Greet(task_id="g").name == "from defaults"  # type: ignore[call-arg]


def test_an_unknown_argument_is_refused_with_task_operator_and_suggestion() -> None:
    with (
        DAG("d"),
        pytest.raises(TypeError, match="'g': Greet does not know the argument 'retires'; did you mean retries"),
    ):
        Greet(task_id="g", name="x", retires=3)


def test_operators_take_keywords_only() -> None:
    with pytest.raises(TypeError, match="keyword arguments only"):
        Greet("name", task_id="g")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("trigger_rule", "sometimes"),
        ("weight_rule", "heavy"),
        ("retries", -1),
        ("retries", "two"),
        ("retry_delay", "soon"),
        ("execution_timeout", "short"),
        ("pool_slots", 0),
        ("priority_weight", 1.5),
    ],
)
def test_a_bad_value_is_refused_with_dag_task_and_argument(argument: str, value: Any) -> None:
    with DAG("d"), pytest.raises(DagInvalid, match=f"'t'.*{argument}") as caught:
        EmptyOperator(task_id="t", **{argument: value})
    assert caught.value.file == __file__


@pytest.mark.parametrize("task_id", ["", "with space", "a/b", None, "x" * 251])
def test_a_bad_task_id_is_refused(task_id: Any) -> None:
    with DAG("d"), pytest.raises(InvalidId):
        EmptyOperator(task_id=task_id)


def test_durations_may_be_numbers_of_seconds() -> None:
    task = EmptyOperator(task_id="t", retry_delay=30, max_retry_delay=60.5, retry_exponential_backoff=True)
    assert task.retry_delay == timedelta(seconds=30)
    assert task.max_retry_delay == timedelta(seconds=60.5)
    assert task.retry_exponential_backoff == 2.0


def test_trigger_rules_are_known_by_text_and_by_name() -> None:
    assert EmptyOperator(task_id="t", trigger_rule="all_done").trigger_rule is TriggerRule.ALL_DONE
    assert EmptyOperator(task_id="t", trigger_rule=TriggerRule.ALWAYS).trigger_rule is TriggerRule.ALWAYS


def test_waiting_for_downstream_means_depending_on_the_past() -> None:
    assert EmptyOperator(task_id="t", wait_for_downstream=True).depends_on_past is True


def test_an_output_in_a_template_field_is_a_dependency() -> None:
    with DAG("d"):
        a = EmptyOperator(task_id="a")
        b = Greet(task_id="b", name=a.output)  # type: ignore[arg-type]
        c = BashOperator(task_id="c", bash_command="x", env={"A": a.output["k"], "B": b.output})  # type: ignore[dict-item]
        d = PythonOperator(task_id="d", python_callable=print, op_args=[[c.output], {"x": (a.output,)}])
    assert b.upstream_task_ids == {"a"}
    assert c.upstream_task_ids == {"a", "b"}
    assert d.upstream_task_ids == {"a", "c"}


def test_relatives_are_found_at_any_distance() -> None:
    with DAG("d"):
        a, b, c = (EmptyOperator(task_id=name) for name in "abc")
        a >> b >> c
    assert a.get_flat_relative_ids() == {"b", "c"}
    assert c.get_flat_relative_ids(upstream=True) == {"a", "b"}
    assert b.get_direct_relatives(upstream=True) == [a]


def test_a_setup_in_a_with_statement_goes_around_the_tasks_inside() -> None:
    with DAG("d"):
        setup, teardown = EmptyOperator(task_id="up"), EmptyOperator(task_id="down")
        with teardown.as_teardown(setups=setup):
            first, second = EmptyOperator(task_id="first"), EmptyOperator(task_id="second")
            first >> second
    assert first.upstream_task_ids == {"up"}
    assert second.upstream_task_ids == {"first"}
    assert teardown.upstream_task_ids == {"up", "second"}
    assert teardown.trigger_rule is TriggerRule.ALL_DONE_SETUP_SUCCESS


def test_partial_refuses_what_the_operator_does_not_know() -> None:
    with pytest.raises(TypeError, match="'t': BashOperator does not know the argument 'bash_comand'"):
        BashOperator.partial(task_id="t", bash_comand="x")


@pytest.mark.parametrize("value", ["text", 5, {1, 2}, range(3), None, (x for x in ())])
def test_what_cannot_be_mapped_over_is_refused_with_dag_and_task(value: Any) -> None:
    with DAG("d"):

        @task
        def one(x: int) -> int:
            return x

        with pytest.raises(DagInvalid, match=r"'d'.*'one'.*'x' cannot be mapped over"):
            one.expand(x=value)
        with pytest.raises(DagInvalid, match=r"'b'.*'bash_command' cannot be mapped over"):
            BashOperator.partial(task_id="b").expand(bash_command=value)


def test_a_setting_of_the_task_cannot_be_mapped() -> None:
    with DAG("d"), pytest.raises(DagInvalid, match="'retries' is the same for all instances"):
        BashOperator.partial(task_id="b").expand(bash_command=["x"], retries=[1])


def test_an_argument_is_either_fixed_or_mapped() -> None:
    with DAG("d"):
        with pytest.raises(DagInvalid, match="both partial"):
            BashOperator.partial(task_id="b", bash_command="x").expand(bash_command=["y"])

        @task
        def one(x: int) -> int:
            return x

        with pytest.raises(TypeError, match="both partial"):
            one.partial(x=1).expand(x=[1])


def test_zipped_outputs_cannot_be_mapped_yet_and_say_so() -> None:
    with DAG("d"):

        @task
        def make() -> list[int]:
            return []

        @task
        def one(x: int) -> int:
            return x

        with pytest.raises(DagInvalid, match=r"\.zip\(\)"):
            one.expand(x=make().zip(make()))


@pytest.mark.parametrize("argument", ["email", "run_as_user", "executor_config"])
def test_an_argument_without_effect_is_told_at_the_authors_line(argument: str) -> None:
    with DAG("d"), pytest.warns(UserWarning, match=f"'t': {argument} has no effect") as caught:
        EmptyOperator(task_id="t", **{argument: "x"})
    assert caught[0].filename == __file__
