"""Functions that wait: what is run again after a wait is exactly what the guide says, and nothing else."""

from collections import Counter
from collections.abc import Iterator

import pytest
from stories.deferral import engine_with, notes, open_gate, xcom

from stannel.model.run import Run
from stannel.testing import Engine

FUNCTIONS = """
    import os
    from datetime import timedelta
    from stannel.sdk import DAG, all_of, any_of, keep, task, wait_for
    from stannel.sdk.exceptions import TaskDeferralError, TaskDeferralTimeout
    from stannel.sdk.operators.python import PythonOperator
    from stannel.triggers.base import BaseTrigger
    from gates import Gate

    def note(*words):
        with open(os.environ["STORY_NOTES"], "a") as file:
            print(*words, file=file)

    def charge(who, order):
        note(who, "charged")
        return {"receipt": order * 100}

    async def later(who):
        note(who, "asked")
        return "answer"

    with DAG("awaits", schedule=None):
        @task
        async def shop(run_id=None):
            note("shop", "began")
            receipt = await keep(charge, "shop", 7)
            note("shop", "before the first wait")
            try:
                first = await wait_for(Gate("first"), timeout=timedelta(minutes=5))
            finally:
                note("shop", "let go")
            note("shop", "between")
            answer = await keep(later, "shop")
            second = await wait_for(Gate("second"))
            note("shop", "ended")
            return [receipt, first, answer, second]
        shop()

    with DAG("plain", schedule=None):
        @task
        def plain(number, run_id=None):
            receipt = keep(charge, f"plain {number}", number).result()
            return [receipt, wait_for(Gate("go")).result(), number]
        plain.expand(number=[1, 2])

        def callable_of_an_operator(**context):
            return wait_for(Gate("go", context["run_id"])).result()
        PythonOperator(task_id="operator", python_callable=callable_of_an_operator)

    with DAG("several", schedule=None):
        @task
        async def first_of(run_id=None):
            by_place = await any_of(Gate("never", run_id), Gate("go", run_id))
            by_name = await any_of(never=Gate("never", run_id), go=Gate("go", run_id))
            return [*by_place, *by_name]
        @task
        async def both(run_id=None):
            in_order = await all_of(Gate("go", run_id), Gate("also", run_id))
            by_name = await all_of(a=Gate("go", run_id), b=Gate("also", run_id))
            return [in_order, by_name]
        first_of(), both()

    class Breaks(BaseTrigger):
        def serialize(self): return f"{__name__}.Breaks", {}
        async def run(self):
            raise ValueError("broken wait")
            yield

    with DAG("fails", schedule=None):
        @task
        async def caught(run_id=None):
            try:
                await wait_for(Gate("never"), timeout=0.2)
            except TaskDeferralTimeout as error:
                said = [type(error).__name__]
            try:
                await wait_for(Breaks())
            except TaskDeferralError as error:
                said.append(type(error).__name__)
            # What was caught is known again after one more wait.
            return [*said, await wait_for(Gate("go"))]
        @task(retries=1, retry_delay=timedelta(0))
        async def again(ti=None):
            note("again", "try", ti.try_number)
            await keep(note, "again", "kept in try", ti.try_number)
            if ti.try_number == 1:
                await wait_for(Breaks())
            return ti.try_number
        caught(), again()

    with DAG("strays", schedule=None):
        @task
        async def strays():
            # The first call comes to another step than the second.
            path = os.environ["STORY_NOTES"] + ".strayed"
            step = print if os.path.exists(path) else note
            open(path, "w").close()
            await keep(step, "strays")
            await wait_for(Gate("go"))
        strays()
"""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine_with(request, tmp_path_factory.mktemp("functions"), {"functions.py": FUNCTIONS}) as engine:
        yield engine


def wait_for_trigger(engine: Engine, run: Run, count: int = 1) -> list[int]:
    """The ids of what a run waits for, once it waits for so many things."""
    is_enough = lambda: len(engine.triggers(run)) == count  # noqa: E731
    engine.wait_until(is_enough, seconds=20, what=f"{run.dag_id} did not wait for {count} things")
    return [one.id for one in engine.triggers(run)]


def test_after_a_wait_the_function_runs_again_but_for_what_it_keeps(engine: Engine) -> None:
    run = engine.trigger("awaits")
    [first] = wait_for_trigger(engine, run)
    open_gate(engine, run, "first", "one")
    engine.wait_until(
        lambda: [one.id for one in engine.triggers(run)] not in ([], [first]), seconds=20, what="no second wait"
    )
    open_gate(engine, run, "second", "two")
    assert engine.wait_for_run(run).state == "success", engine.task_log(run, "shop")
    assert xcom(engine, run, "shop") == [{"receipt": 700}, "one", "answer", "two"]
    assert Counter(line for line in notes(engine) if line.startswith("shop")) == {
        "shop began": 3,
        "shop charged": 1,
        "shop before the first wait": 3,
        # Once when the wait begins, and each time it is walked through.
        "shop let go": 3,
        "shop between": 2,
        "shop asked": 1,
        "shop ended": 1,
    }


def test_plain_functions_mapped_ones_and_callables_of_operators_wait_too(engine: Engine) -> None:
    run = engine.trigger("plain")
    wait_for_trigger(engine, run, 3)
    open_gate(engine, run, "go", "gone")
    assert engine.wait_for_run(run).state == "success", engine.states(run)
    found = [xcom(engine, run, "plain", map_index=index) for index in (0, 1)]
    assert found == [[{"receipt": 100}, "gone", 1], [{"receipt": 200}, "gone", 2]]
    assert xcom(engine, run, "operator") == "gone"
    assert Counter(line for line in notes(engine) if line.startswith("plain")) == {
        "plain 1 charged": 1,
        "plain 2 charged": 1,
    }


def test_several_things_are_waited_for_at_once(engine: Engine) -> None:
    run = engine.trigger("several")
    wait_for_trigger(engine, run, 2)
    open_gate(engine, run, "also", "b")
    open_gate(engine, run, "go", "a")
    assert engine.wait_for_run(run).state == "success", engine.states(run)
    assert xcom(engine, run, "first_of") == [1, "a", "go", "a"]
    assert xcom(engine, run, "both") == [["a", "b"], {"a": "a", "b": "b"}]


def test_what_a_failed_wait_raised_is_raised_again_and_a_retry_starts_from_nothing(engine: Engine) -> None:
    run = engine.trigger("fails")
    open_gate(engine, run, "go", "on")
    assert engine.wait_for_run(run).state == "success", engine.task_log(run, "caught")
    assert xcom(engine, run, "caught") == ["TaskDeferralTimeout", "TaskDeferralError", "on"]
    assert xcom(engine, run, "again") == 2
    said = [line for line in notes(engine) if line.startswith("again")]
    # The first try runs up to the wait, and once more to hear of its failure; the second try knows nothing of it.
    assert said == [
        "again try 1",
        "again kept in try 1",
        "again try 1",
        "again try 2",
        "again kept in try 2",
    ]
    assert "broken wait" in engine.task_log(run, "again", attempt=1)


def test_a_function_that_does_something_else_the_second_time_fails_and_is_told_what(engine: Engine) -> None:
    run = engine.trigger("strays")
    wait_for_trigger(engine, run)
    open_gate(engine, run, "go")
    assert engine.wait_for_run(run).state == "failed"
    log = engine.task_log(run, "strays")
    assert "keep(note)" in log
    assert "keep(print)" in log
