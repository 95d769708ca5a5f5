"""`@task` and its relatives, while a DAG is written."""

from typing import Any, TypedDict

import pytest

from stannel.sdk import DAG, XComArg, setup, task, teardown
from stannel.sdk.decorators import returns_dict


def test_a_call_gives_a_reference_and_makes_a_task() -> None:
    with DAG("d") as dag:

        @task(retries=3, task_id="named")
        def one(x: int) -> int:
            """What it does."""
            return x

        result = one(1)
    assert isinstance(result, XComArg)
    made = dag.get_task("named")
    assert (made.retries, made.doc_md, made.task_type) == (3, "What it does.", "@task")


def test_the_function_itself_stays_reachable() -> None:
    @task
    def one(x: int) -> int:
        return x + 1

    assert one.function(1) == 2
    assert one.__name__ == "one"


def test_override_leaves_the_original_as_it_was() -> None:
    with DAG("d") as dag:

        @task(retries=1)
        def one() -> None: ...

        one.override(retries=5, task_id="other")()
        one()
    assert (dag.get_task("other").retries, dag.get_task("one").retries) == (5, 1)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "needs the argument 'x'"),
        ((1, 2, 3), {}, "fewer than 3 positional"),
        ((1,), {"z": 1}, "no argument 'z'"),
    ],
)
def test_a_call_that_cannot_work_is_refused_at_once(args: Any, kwargs: Any, message: str) -> None:
    with DAG("d"):

        @task
        def one(x: int, y: int = 0) -> int:
            return x

        with pytest.raises(TypeError, match=f"'one'.*{message}"):
            one(*args, **kwargs)


def test_context_variables_need_not_be_given() -> None:
    with DAG("d") as dag:

        @task
        def one(ds: str, ti: Any, x: int = 1) -> None: ...

        one()
    assert dag.task_ids == ["one"]


def test_an_output_cannot_be_iterated_or_indexed_by_number() -> None:
    with DAG("d"):

        @task
        def one() -> list[int]:
            return []

        with pytest.raises(TypeError, match="expand"):
            list(one())
        with pytest.raises(TypeError, match="name of an XCom"):
            one()[0]


class Fields(TypedDict):
    a: int


def test_annotations_decide_about_multiple_outputs() -> None:
    def plain() -> int: ...  # type: ignore[empty-body]
    def mapping() -> dict[str, int]: ...  # type: ignore[empty-body]
    def bare() -> dict: ...  # type: ignore[empty-body, type-arg]
    def numbered() -> dict[int, int]: ...  # type: ignore[empty-body]
    def typed() -> Fields: ...  # type: ignore[empty-body]
    def unknown() -> "Nowhere": ...  # type: ignore[name-defined]  # noqa: F821

    answers = [returns_dict(function) for function in (plain, mapping, bare, numbered, typed, unknown)]
    assert answers == [False, True, True, False, True, False]


def test_an_unknown_kind_of_task_says_what_there_is() -> None:
    with pytest.raises(AttributeError, match=r"@task\.kubernetes yet.*@task\.bash"):
        task.kubernetes  # noqa: B018


def test_setups_and_teardowns_are_marked() -> None:
    with DAG("d") as dag:

        @setup
        def up() -> None: ...

        @teardown(on_failure_fail_dagrun=True)
        @task(retries=2)
        def down() -> None: ...

        up() >> down()
    assert dag.get_task("up").is_setup
    assert dag.get_task("down").is_teardown
    assert dag.get_task("down").on_failure_fail_dagrun
    assert dag.get_task("down").retries == 2


def test_one_decorator_is_enough() -> None:
    @task
    def one() -> None: ...

    with pytest.raises(TypeError, match="already"):
        task(one)
