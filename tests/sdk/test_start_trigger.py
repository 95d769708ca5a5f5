"""Tasks that begin with their trigger: what the engine is told while their file is read."""

from datetime import timedelta
from typing import Any

import pytest

from stannel.errors import DagInvalid, NotSerializable
from stannel.model.dag import StartTrigger, decode_dag
from stannel.sdk import DAG, BaseOperator, BaseSensorOperator, StartTriggerArgs, serde, task
from stannel.sdk.compile import compile_dag
from stannel.sdk.operators import BashOperator, PythonOperator


class Later(BaseSensorOperator):
    """Begins with its trigger; each task says how long."""

    start_trigger_args = StartTriggerArgs(
        trigger_cls="stannel.triggers.temporal.TimeDeltaTrigger",
        trigger_kwargs={"delta": timedelta(hours=1)},
        next_method="execute_complete",
        next_kwargs={"step": 2},
        timeout=timedelta(hours=3),
    )
    start_from_trigger = True

    def __init__(
        self, *, trigger_kwargs: dict[str, Any] | None = None, start_from_trigger: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        assert self.start_trigger_args is not None
        if trigger_kwargs is not None:
            self.start_trigger_args.trigger_kwargs = trigger_kwargs
        self.start_from_trigger = start_from_trigger

    def execute_complete(self, context: Any, event: Any = None, step: int = 1) -> None: ...


def specs(dag: DAG) -> dict[str, Any]:
    return {spec.task_id: spec for spec in compile_dag(dag, fileloc="f.py").tasks}


def test_a_task_says_which_trigger_it_begins_with() -> None:
    with DAG("d") as dag:
        Later(task_id="t")
    start = specs(dag)["t"].start_trigger
    assert start == StartTrigger(
        classpath="stannel.triggers.temporal.TimeDeltaTrigger",
        kwargs={"delta": serde.encode(timedelta(hours=1))},
        method="execute_complete",
        next_kwargs={"step": 2},
        timeout=10800.0,
    )


def test_tasks_of_a_class_do_not_share_what_they_change() -> None:
    with DAG("d") as dag:
        Later(task_id="long", trigger_kwargs={"delta": 9})
        Later(task_id="plain")
        Later(task_id="process", start_from_trigger=False)
    found = specs(dag)
    assert found["long"].start_trigger.kwargs == {"delta": 9}
    assert found["plain"].start_trigger.kwargs == {"delta": serde.encode(timedelta(hours=1))}
    assert found["process"].start_trigger is None


def test_the_queue_is_told_where_triggers_have_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    with DAG("d") as dag:
        Later(task_id="t", queue="fast")
    assert specs(dag)["t"].start_trigger.queue is None
    monkeypatch.setenv("STANNEL__TRIGGERER__QUEUES_ENABLED", "true")
    assert specs(dag)["t"].start_trigger.queue == "fast"


def test_templates_in_arguments_are_noticed() -> None:
    with DAG("d") as dag:
        Later(task_id="t", trigger_kwargs={"day": ["{{ ds }}"]})
    assert specs(dag)["t"].start_trigger.renders


def test_instances_of_a_mapped_task_begin_with_what_they_share() -> None:
    with DAG("d") as dag:
        Later.partial(task_id="all", trigger_kwargs={"delta": 9}).expand(poke_interval=[1, 2])
        Later.partial(task_id="none", start_from_trigger=False).expand(poke_interval=[1, 2])
        Later.partial(task_id="own").expand(trigger_kwargs=[{"delta": 1}, {"delta": 2}])
    with pytest.warns(UserWarning, match="because what they wait for differs"):
        found = specs(dag)
    assert found["all"].start_trigger.kwargs == {"delta": 9}
    assert found["none"].start_trigger is None
    assert found["own"].start_trigger is None


class Unknown(Later):
    start_trigger_args = StartTriggerArgs(trigger_cls="a.B", next_method="renamed")


class Nothing(BaseOperator):
    start_from_trigger = True


@pytest.mark.parametrize(
    ("kind", "arguments", "error", "words"),
    [
        (Unknown, {}, DagInvalid, "goes on at 'renamed', which the operator does not have"),
        (Nothing, {}, DagInvalid, "start_trigger_args does not say which trigger"),
        (Later, {"trigger_kwargs": {"lock": object()}}, NotSerializable, "the argument 'lock' of the start trigger"),
    ],
)
def test_what_could_not_begin_is_refused_while_the_file_is_read(
    kind: Any, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with DAG("d") as dag:
        kind(task_id="t", **arguments)
    with pytest.raises(error, match=words):
        specs(dag)


def test_another_tasks_output_cannot_be_part_of_the_beginning() -> None:
    with DAG("d") as dag:

        @task
        def first() -> int:
            return 1

        Later(task_id="t", trigger_kwargs={"delta": first()})
    with pytest.raises(DagInvalid, match="not known before the task has a process"):
        specs(dag)


def test_the_engine_knows_whose_code_must_hear_of_a_failed_wait() -> None:
    class Own(BaseOperator):
        def resume_execution(self, next_method: str, next_kwargs: Any, context: Any) -> None: ...

    with DAG("d") as dag:
        Later(task_id="sensor")
        Own(task_id="own")
        PythonOperator(task_id="function", python_callable=int)
        BashOperator(task_id="bash", bash_command="true")
        Later.partial(task_id="mapped_sensor").expand(poke_interval=[1])
    told = {name for name, spec in specs(dag).items() if spec.resumes_failures}
    assert told == {"sensor", "own", "function", "mapped_sensor"}


def test_a_dag_stored_before_there_were_triggers_can_still_be_read() -> None:
    (old,) = decode_dag(b'{"dag_id": "d", "tasks": [{"task_id": "t"}]}').tasks
    assert (old.start_trigger, old.resumes_failures) == (None, False)
