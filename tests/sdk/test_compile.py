"""From the author's objects to the engine's data."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stannel.errors import CycleFound, DagInvalid
from stannel.model.dag import GroupSpec, Mapping, MapSource, Retry, TriggerRule, decode_dag, encode_dag
from stannel.model.schedule import Continuous, Cron, Every, Never, Once
from stannel.sdk import (
    DAG,
    CronDataIntervalTimetable,
    CronTriggerTimetable,
    DeltaDataIntervalTimetable,
    DeltaTriggerTimetable,
    Label,
    Param,
    TaskGroup,
    task,
)
from stannel.sdk.compile import compile_dag, priorities_of
from stannel.sdk.operators import BashOperator, EmptyOperator


@pytest.mark.parametrize(
    ("schedule", "compiled"),
    [
        (None, Never()),
        ("@once", Once()),
        ("@continuous", Continuous()),
        ("@daily", Cron("0 0 * * *", interval=False)),
        ("@Hourly", Cron("0 * * * *", interval=False)),
        ("  5  4 * * mon ", Cron("5 4 * * mon", interval=False)),
        ("1 2 3 4 5 6", Cron("1 2 3 4 5 6", interval=False)),
        (timedelta(minutes=5), Every(300.0, interval=False)),
        (CronTriggerTimetable("@weekly", timezone="Asia/Tokyo"), Cron("0 0 * * 0", "Asia/Tokyo", interval=False)),
        (CronDataIntervalTimetable("0 6 * * *", "UTC"), Cron("0 6 * * *", interval=True)),
        (DeltaTriggerTimetable(timedelta(hours=1)), Every(3600.0, interval=False)),
        (DeltaDataIntervalTimetable(timedelta(hours=1)), Every(3600.0, interval=True)),
    ],
)
def test_every_way_to_write_a_schedule(schedule: Any, compiled: Any) -> None:
    assert compile_dag(DAG("d", schedule=schedule), fileloc="f.py").schedule == compiled


def test_a_cron_text_is_read_on_the_clock_of_the_start_date() -> None:
    dag = DAG("d", schedule="0 6 * * *", start_date=datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")))
    spec = compile_dag(dag, fileloc="f.py")
    assert spec.schedule == Cron("0 6 * * *", "Europe/Berlin", interval=False)
    assert spec.timezone == "Europe/Berlin"


def full_dag() -> DAG:
    with DAG(
        "full",
        description="words",
        schedule="@daily",
        start_date=datetime(2026, 1, 1),
        catchup=True,
        max_active_runs=3,
        dagrun_timeout=timedelta(hours=1),
        params={"n": Param(1, type="integer", description="a number"), "s": Param(type="string")},
        tags=["b", "a"],
        on_failure_callback=print,
        default_args={"owner": "team"},
    ) as dag:

        @task(
            retries=3,
            retry_delay=timedelta(seconds=10),
            retry_exponential_backoff=True,
            max_retry_delay=60,
            execution_timeout=timedelta(seconds=5),
            pool="small",
            pool_slots=2,
            queue="fast",
            depends_on_past=True,
            max_active_tis_per_dag=4,
            on_retry_callback=[print],
            trigger_rule="all_done",
        )
        def first() -> list[int]:
            return [1]

        @task
        def second(x: int) -> int:
            return x

        numbers = first()
        with TaskGroup("g", tooltip="tip"):
            mapped = second.expand(x=numbers)
        mapped >> Label("then") >> EmptyOperator(task_id="end")
        BashOperator.partial(task_id="bash").expand(bash_command=["a", "b"], cwd=[None])
    return dag


def test_a_dags_settings_arrive() -> None:
    spec = compile_dag(full_dag(), fileloc="full.py")
    assert (spec.dag_id, spec.fileloc, spec.description, spec.catchup) == ("full", "full.py", "words", True)
    assert spec.start_date == datetime(2026, 1, 1, tzinfo=UTC)
    assert (spec.max_active_runs, spec.max_active_tasks, spec.dagrun_timeout) == (3, None, 3600.0)
    assert (spec.tags, spec.owners, spec.callbacks) == (("a", "b"), ("team",), ("failure",))
    assert spec.params["n"].default == 1
    assert spec.params["n"].schema == {"type": "integer"}
    assert spec.params["n"].description == "a number"
    assert spec.params["s"].required
    assert spec.groups == (GroupSpec("g", tooltip="tip"),)
    assert spec.extra["edge_labels"] == [["g.second", "end", "then"]]


def test_a_tasks_settings_arrive() -> None:
    spec = compile_dag(full_dag(), fileloc="full.py")
    first, second, end, bash = spec.tasks
    assert first.retry == Retry(retries=3, delay=10.0, exponential=2.0, max_delay=60.0)
    assert (first.execution_timeout, first.pool, first.pool_slots, first.queue) == (5.0, "small", 2, "fast")
    assert (first.depends_on_past, first.max_active_tis_per_dag) == (True, 4)
    assert (first.callbacks, first.trigger_rule, first.operator) == (("retry",), TriggerRule.ALL_DONE, "@task")
    assert second.mapping == Mapping((MapSource("x", task_id="first"),))
    assert (second.task_id, second.group_id, second.upstream) == ("g.second", "g", ("first",))
    assert bash.mapping == Mapping((MapSource("bash_command", length=2), MapSource("cwd", length=1)))
    assert (end.is_empty, first.is_empty) == (True, False)


def test_an_empty_task_with_something_to_do_needs_a_process() -> None:
    with DAG("d") as dag:
        EmptyOperator(task_id="callback", on_success_callback=print)
        EmptyOperator(task_id="hook", pre_execute=print)
        EmptyOperator(task_id="plain")
    assert [one.is_empty for one in compile_dag(dag, fileloc="f.py").tasks] == [False, False, True]


def test_expand_kwargs_is_marked_as_such() -> None:
    with DAG("d") as dag:

        @task
        def one(x: int) -> int:
            return x

        one.expand_kwargs([{"x": 1}, {"x": 2}])
    (spec,) = compile_dag(dag, fileloc="f.py").tasks
    assert spec.mapping == Mapping((MapSource("kwargs", length=2),), by_kwargs=True)


def test_equal_dags_give_equal_bytes_that_can_be_read_again() -> None:
    first, second = (encode_dag(compile_dag(full_dag(), fileloc="full.py")) for _ in range(2))
    assert first == second
    assert decode_dag(first) == compile_dag(full_dag(), fileloc="full.py")


def test_a_circle_is_reported_with_its_path_and_file() -> None:
    with DAG("d") as dag:
        before, a, b, c, after = (EmptyOperator(task_id=name) for name in ("before", "a", "b", "c", "after"))
        before >> a >> b >> c >> a
        c >> after
    with pytest.raises(CycleFound) as caught:
        compile_dag(dag, fileloc="circle.py")
    path = caught.value.path
    assert path[0] == path[-1]
    assert set(path) == {"a", "b", "c"}
    assert all(right in dag.get_task(left).downstream_task_ids for left, right in itertools.pairwise(path))
    assert caught.value.file == "circle.py"


def test_a_task_that_waits_for_itself_is_a_circle() -> None:
    with DAG("d") as dag:
        a = EmptyOperator(task_id="a")
        a >> a
    with pytest.raises(CycleFound) as caught:
        compile_dag(dag, fileloc="f.py")
    assert caught.value.path == ("a", "a")


def test_a_default_that_breaks_its_schema_is_refused() -> None:
    with pytest.raises(DagInvalid, match=r"'n'.*'x' is not of type integer"):
        compile_dag(DAG("d", params={"n": Param("x", type="integer")}), fileloc="f.py")


@pytest.mark.parametrize(
    ("rule", "expected"), [("downstream", [10, 9, 4]), ("upstream", [1, 6, 10]), ("absolute", [1, 5, 4])]
)
def test_weights_follow_the_rule(rule: str, expected: list[int]) -> None:
    with DAG("d") as dag:
        a, b, c = (
            EmptyOperator(task_id=name, priority_weight=weight, weight_rule=rule)
            for name, weight in (("a", 1), ("b", 5), ("c", 4))
        )
        a >> b >> c
        a >> c
    assert list(priorities_of(dag).values()) == expected


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_a_downstream_weight_counts_every_later_task_once(pairs: list[tuple[int, int]]) -> None:
    with DAG("d") as dag:
        tasks = [EmptyOperator(task_id=f"t{number}", priority_weight=2**number) for number in range(8)]
        for low, high in pairs:
            if low != high:
                tasks[min(low, high)] >> tasks[max(low, high)]
    weights = priorities_of(dag)
    for one in tasks:
        later = sum(dag.get_task(task_id).priority_weight for task_id in one.get_flat_relative_ids())
        assert weights[one.task_id] == one.priority_weight + later  # type: ignore[attr-defined]


def test_a_wide_and_deep_dag_compiles_quickly_enough_to_be_practical() -> None:
    with DAG("d") as dag:
        layers = [[EmptyOperator(task_id=f"t{layer}_{place}") for place in range(10)] for layer in range(30)]
        for left, right in itertools.pairwise(layers):
            for one in left:
                one >> right
    spec = compile_dag(dag, fileloc="f.py")
    # Counting paths instead of tasks would give 10 ** 29 here, and take as long.
    assert spec.tasks[0].priority == 1 + 29 * 10


@pytest.mark.parametrize(
    ("settings", "blame"),
    [({"queue": 5}, "task 't'.*queue"), ({"doc_md": 5}, "task 't'.*doc"), ({"executor": [1]}, "task 't'.*executor")],
)
def test_a_setting_of_the_wrong_type_is_blamed_on_its_task(settings: Any, blame: str) -> None:
    with DAG("d") as dag:
        EmptyOperator(task_id="first")
        EmptyOperator(task_id="t", **settings)
    with pytest.raises(DagInvalid, match=blame):
        compile_dag(dag, fileloc="f.py")


def test_a_setting_of_the_dag_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(DagInvalid, match=r"'d'.*description"):
        compile_dag(DAG("d", description=5), fileloc="f.py")  # type: ignore[arg-type]
