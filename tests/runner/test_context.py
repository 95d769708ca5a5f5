"""What a running task may know, in functions and in templates."""

from datetime import timedelta
from typing import Any

import pytest
from support.memory_channel import MOMENT, MemoryChannel, run

from stannel.protocol.replies import ConnectionResult, PrevSuccessfulDagRunResult
from stannel.protocol.requests import (
    GetPrevSuccessfulDagRun,
    GetXCom,
    SetRenderedFields,
    SucceedTask,
)
from stannel.sdk import DAG, Param, get_current_context, task
from stannel.sdk.operators import (
    BashOperator,
    PythonOperator,
)


@pytest.fixture
def channel() -> MemoryChannel:
    return MemoryChannel()


# --- the context -----------------------------------------------------------------------------------------------------
def test_a_function_gets_the_context_variables_it_names(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task
        def facts(x: int, ds: str = "", ti: Any = None, *, run_id: str = "") -> Any:
            return [x, ds, ti.try_number, run_id]

        facts(5)
    run(dag, "facts", channel)
    assert channel.returned("facts") == [5, "2026-11-15", 1, "manual__2026-11-15T06:30:00+00:00"]


def test_given_arguments_win_over_the_context(channel: MemoryChannel) -> None:
    with DAG("d") as dag:
        PythonOperator(task_id="t", python_callable=lambda ds, ts: [ds, ts], op_args=["mine"], op_kwargs={"ts": "own"})
    run(dag, "t", channel)
    assert channel.returned("t") == ["mine", "own"]


def test_kwargs_get_everything_without_asking_the_engine(channel: MemoryChannel) -> None:
    seen: dict[str, Any] = {}

    def take(**context: Any) -> None:
        seen.update(context)

    with DAG("d") as dag:
        PythonOperator(task_id="t", python_callable=take)
    run(dag, "t", channel)
    assert channel.asked == []
    assert {"ds", "ts_nodash", "dag", "dag_run", "task_instance", "var", "macros"} <= seen.keys()
    assert seen["dag"] is dag
    assert seen["ts_nodash"] == "20261115T063000"


def test_the_last_success_is_asked_for_once_and_only_when_used(channel: MemoryChannel) -> None:
    channel.previous = PrevSuccessfulDagRunResult(start_date=MOMENT, end_date=MOMENT + timedelta(hours=1))

    def take(**context: Any) -> Any:
        return [context["prev_start_date_success"], context["prev_end_date_success"]]

    with DAG("d") as dag:
        PythonOperator(task_id="t", python_callable=take)
    assert isinstance(run(dag, "t", channel), SucceedTask)
    assert len(channel.sent(GetPrevSuccessfulDagRun)) == 1


def test_get_current_context_works_inside_and_only_inside(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task
        def inside() -> Any:
            return get_current_context()["ds_nodash"]

        inside()
    run(dag, "inside", channel)
    assert channel.returned("inside") == "20261115"
    with pytest.raises(RuntimeError, match="no task is running"):
        get_current_context()


def test_a_run_without_logical_date_has_dates_of_its_start(channel: MemoryChannel) -> None:
    with DAG("d") as dag:
        PythonOperator(task_id="t", python_callable=lambda ds, logical_date: [ds, logical_date])
    run(dag, "t", channel, logical_date=None)
    assert channel.returned("t") == ["2026-11-15", None]


def test_params_come_from_dag_task_and_run_in_this_order(channel: MemoryChannel) -> None:
    with DAG("d", params={"a": 1, "b": 1, "c": Param(1, type="integer")}) as dag:
        PythonOperator(task_id="t", python_callable=lambda params: {**params}, params={"b": 2})
    run(dag, "t", channel, conf={"c": 3})
    assert channel.returned("t") == {"a": 1, "b": 2, "c": 3}


def test_a_run_parameter_that_breaks_its_schema_fails_the_task(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    with DAG("d", params={"n": Param(1, type="integer", minimum=0)}) as dag:
        PythonOperator(task_id="t", python_callable=lambda params: 1)
    assert run(dag, "t", channel, conf={"n": -1}).state == "failed"
    assert "'n'" in caplog.text
    assert "-1 is less than 0" in caplog.text


def test_an_argument_of_a_dag_function_is_a_run_parameter(channel: MemoryChannel) -> None:
    from stannel.sdk import dag as dag_decorator

    @dag_decorator
    def parametrised(city: str = "Bern") -> None:
        @task
        def greet(name: str) -> str:
            return name

        greet(city)

    made = parametrised()
    run(made, "greet", channel)
    assert channel.returned("greet") == "Bern"
    run(made, "greet", channel, conf={"city": "Thun"})
    assert channel.returned("greet") == "Thun"


def test_ti_pushes_and_pulls(channel: MemoryChannel) -> None:
    def push(ti: Any) -> None:
        ti.xcom_push("k", {"x": 1})

    def pull(ti: Any) -> Any:
        several = ti.xcom_pull(task_ids=["push", "absent"], key="k", default="none")
        return [ti.xcom_pull(task_ids="push", key="k"), several, ti.xcom_pull("absent", default=7)]

    with DAG("d") as dag:
        PythonOperator(task_id="push", python_callable=push)
        PythonOperator(task_id="pull", python_callable=pull)
    run(dag, "push", channel)
    run(dag, "pull", channel)
    assert channel.returned("pull") == [{"x": 1}, [{"x": 1}, "none"], 7]


def test_include_prior_dates_is_passed_on(channel: MemoryChannel) -> None:
    with DAG("d") as dag:
        PythonOperator(
            task_id="t", python_callable=lambda ti: ti.xcom_pull("other", dag_id="e", include_prior_dates=True)
        )
    run(dag, "t", channel)
    (asked,) = channel.sent(GetXCom)
    assert (asked.dag_id, asked.task_id, asked.include_prior_dates) == ("e", "other", True)


# --- templates -------------------------------------------------------------------------------------------------------
def test_templates_see_the_usual_variables(channel: MemoryChannel) -> None:
    channel.variables = {"region": "north", "limits": '{"max": 9}'}
    channel.connections["db"] = ConnectionResult(
        conn_id="db", conn_type="postgres", host="h", schema=None, login=None, password=None, port=5432, extra=None
    )
    template = (
        "{{ ds }} {{ ts_nodash }} {{ params.p }} {{ var.value.region }} {{ var.json.limits.max }} {{ conn.db.host }} "
        "{{ macros.ds_add(ds, 1) }} {{ logical_date | ds_nodash }} {{ dag.dag_id }} {{ ti.task_id }} {{ task.owner }} "
        "{{ var.value.get('none', 'fallback') }} {{ dag_run.conf.get('c') }}"
    )
    with DAG("d", params={"p": 4}) as dag:
        PythonOperator(task_id="t", python_callable=lambda text: text, op_kwargs={"text": template})
    run(dag, "t", channel, conf={"c": "given"})
    assert channel.returned("t") == (
        "2026-11-15 20261115T063000 4 north 9 h 2026-11-16 20261115 d t stannel fallback given"
    )


def test_rendered_fields_are_reported_and_only_if_something_was_rendered(channel: MemoryChannel) -> None:
    with DAG("d") as dag:
        BashOperator(task_id="with", bash_command="echo {{ ds }}", env={"PLAIN": "1"})
        BashOperator(task_id="without", bash_command="true")
    run(dag, "with", channel)
    run(dag, "without", channel)
    assert [body.rendered_fields for body in channel.sent(SetRenderedFields)] == [{"bash_command": "echo 2026-11-15"}]


def test_an_unknown_variable_in_a_template_fails_the_task(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    with DAG("d") as dag:
        BashOperator(task_id="t", bash_command="echo {{ nothing_of_the_kind }}")
    assert run(dag, "t", channel).state == "failed"
    assert "nothing_of_the_kind" in caplog.text


def test_native_rendering_keeps_python_objects(channel: MemoryChannel) -> None:
    with DAG("d", render_template_as_native_obj=True) as dag:
        PythonOperator(task_id="t", python_callable=lambda x: x, op_kwargs={"x": "{{ [1, 2] }}"})
    run(dag, "t", channel)
    assert channel.returned("t") == [1, 2]


def test_macros_and_filters_of_the_dag_are_known(channel: MemoryChannel) -> None:
    with DAG("d", user_defined_macros={"two": 2}, user_defined_filters={"shout": str.upper}) as dag:
        PythonOperator(task_id="t", python_callable=lambda x: x, op_kwargs={"x": "{{ 'a' | shout }}{{ two }}"})
    run(dag, "t", channel)
    assert channel.returned("t") == "A2"


def test_a_template_file_is_read_from_the_search_path(channel: MemoryChannel, tmp_path: Any) -> None:
    (tmp_path / "script.sh").write_text("echo from file {{ ds }}\n")
    with DAG("d", template_searchpath=str(tmp_path)) as dag:
        BashOperator(task_id="t", bash_command="script.sh")
    run(dag, "t", channel)
    assert channel.returned("t") == "from file 2026-11-15"


def test_text_that_came_out_of_a_task_is_not_a_template(channel: MemoryChannel) -> None:
    channel.xcoms["make", "return_value", -1] = ["{{ ds }}"]
    with DAG("d") as dag:

        @task
        def make() -> list[str]:
            return []

        @task
        def keep(text: Any) -> Any:
            return text

        made = make()
        keep(made)
        keep.override(task_id="mapped").expand(text=made)
    run(dag, "keep", channel)
    run(dag, "mapped", channel, map_index=0)
    assert channel.returned("keep") == ["{{ ds }}"]
    assert channel.returned("mapped", 0) == "{{ ds }}"


def test_an_output_inside_a_text_is_a_template(channel: MemoryChannel) -> None:
    channel.xcoms["make", "return_value", -1] = "v"
    with DAG("d") as dag:
        made = PythonOperator(task_id="make", python_callable=print)
        PythonOperator(task_id="use", python_callable=lambda x: x, op_kwargs={"x": f"<{made.output}>"})
    run(dag, "use", channel)
    assert channel.returned("use") == "<v>"
