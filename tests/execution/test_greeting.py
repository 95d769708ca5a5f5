"""The first message to a task says everything it needs."""

from scheduler.conftest import Stage

from stannel.execution.answers import answer
from stannel.execution.greeting import greeting
from stannel.model.run import Attempt
from stannel.model.states import TaskState
from stannel.protocol.replies import TaskRescheduleStartDate
from stannel.protocol.requests import GetTaskRescheduleStartDate
from stannel.protocol.session import RuntimeSession, SupervisorSession


def test_the_greeting_survives_the_wire(attempt: Attempt) -> None:
    said = greeting(attempt, hostname="here")
    assert RuntimeSession().read_greeting(SupervisorSession().greet(said)) == said


def test_the_greeting_names_run_and_try(stage: Stage, attempt: Attempt) -> None:
    said = greeting(attempt, hostname="here")
    assert (said.ti.dag_id, said.ti.run_id, said.ti.task_id, said.ti.try_number) == ("d", "now", "asks", 1)
    assert said.ti.id == attempt.attempt_id
    assert said.ti_context.dag_run.conf == {"size": 3}
    assert said.ti_context.dag_run.logical_date == stage.now
    assert said.ti_context.should_retry is False


def test_a_rescheduled_try_is_told_when_it_first_started(stage: Stage, attempt: Attempt) -> None:
    assert greeting(attempt, hostname="here").ti_context.start_date is None
    began = stage.now
    stage.end(attempt, TaskState.UP_FOR_RESCHEDULE, retry_at=began)
    stage.tick(seconds=30)
    again = stage.claim()["asks"]
    said = greeting(again, hostname="here")
    assert (said.start_date, said.ti_context.start_date) == (stage.now, began)
    assert (said.ti.try_number, said.ti_context.task_reschedule_count) == (1, 1)
    question = GetTaskRescheduleStartDate(ti_id=again.attempt_id)
    assert answer(stage.store, again, question, xcom_limit=1) == TaskRescheduleStartDate(began)


def test_a_callback_is_asked_for_in_the_greeting(attempt: Attempt) -> None:
    said = greeting(attempt, hostname="here", callback={"kind": "failure", "scope": "dag"})
    assert said.ti_context.stannel == {"callback": {"kind": "failure", "scope": "dag"}}
