"""Everything a running task may ask is answered from the store, or refused with a code it understands."""

from datetime import timedelta
from typing import Any

import pytest
from scheduler.conftest import Stage, task

from stannel.execution.answers import answer
from stannel.model.run import Attempt
from stannel.model.states import RunState
from stannel.protocol import replies, requests
from stannel.protocol.refusal import Refused
from stannel.protocol.schema import ErrorCode
from stannel.store.entries import StoredConnection

LIMIT = 1000


class Asking:
    """The attempt's side of the wire."""

    def __init__(self, stage: Stage, attempt: Attempt) -> None:
        self.stage, self.attempt = stage, attempt
        self.ids = {"dag_id": attempt.dag_id, "run_id": attempt.run_id, "task_id": attempt.task_id}

    def __call__(self, request: requests.Request) -> Any:
        return answer(self.stage.store, self.attempt, request, xcom_limit=LIMIT)

    def refused(self, request: requests.Request) -> Refused:
        with pytest.raises(Refused) as refusal:
            self(request)
        return refusal.value

    def push(self, value: Any, key: str = "return_value", **fields: Any) -> None:
        assert self(requests.SetXCom(key=key, value=value, **{**self.ids, **fields})) is None

    def pull(self, key: str = "return_value", **fields: Any) -> Any:
        return self(requests.GetXCom(key=key, **{**self.ids, **fields})).value


@pytest.fixture
def ask(stage: Stage, attempt: Attempt) -> Asking:
    return Asking(stage, attempt)


def test_a_connection_is_given_with_its_password_and_extra_as_text(ask: Asking) -> None:
    given = StoredConnection(conn_id="db", conn_type="postgres", host="h", password="secret", extra='{"a": 1}')
    ask.stage.store.connections.save(given)
    found = ask(requests.GetConnection("db"))
    assert (found.password, found.extra, found.port) == ("secret", '{"a": 1}', None)


def test_what_does_not_exist_is_refused_in_the_body_with_its_own_code(ask: Asking) -> None:
    connection, variable = ask.refused(requests.GetConnection("nope")), ask.refused(requests.GetVariable("nope"))
    assert (connection.code, connection.detail) == (ErrorCode.CONNECTION_NOT_FOUND, {"conn_id": "nope"})
    assert (variable.code, variable.detail) == (ErrorCode.VARIABLE_NOT_FOUND, {"key": "nope"})
    assert connection.in_body
    assert variable.in_body


def test_a_variable_can_be_written_read_listed_and_deleted(ask: Asking) -> None:
    assert ask(requests.PutVariable("team.a", "1", None)) is None
    assert ask(requests.PutVariable("team.b", "2", "two")) is None
    assert ask(requests.GetVariable("team.b")).value == "2"
    assert ask(requests.GetVariableKeys(prefix="team.", limit=1)) == replies.VariableKeysResult(["team.a"], 2)
    assert ask(requests.DeleteVariable("team.b")).ok
    assert ask.refused(requests.GetVariable("team.b")).code is ErrorCode.VARIABLE_NOT_FOUND


@pytest.mark.parametrize("value", [None, 0, "text", [1, {"a": None}], {"k": [1.5, True]}])
def test_an_xcom_comes_back_as_it_was(ask: Asking, value: Any) -> None:
    ask.push(value)
    assert ask.pull() == value


def test_a_missing_xcom_is_null_and_not_an_error(ask: Asking) -> None:
    assert ask.pull("nothing") is None
    assert ask.pull("nothing", run_id="no such run") is None


@pytest.mark.parametrize("unmapped", [None, -1, -7])
def test_every_way_to_say_unmapped_means_the_same_row_and_zero_does_not(ask: Asking, unmapped: int | None) -> None:
    ask.push("plain", map_index=unmapped)
    assert ask.pull() == "plain"
    assert ask.pull(map_index=0) is None


def test_an_xcom_that_is_too_large_is_refused_and_nothing_is_written(ask: Asking) -> None:
    refusal = ask.refused(requests.SetXCom(key="big", value="x" * 2000, **ask.ids))
    assert refusal.code is ErrorCode.API_SERVER_ERROR
    assert "xcom_max_size" in (refusal.detail or {})["message"]
    assert ask.pull("big") is None


def test_the_values_of_a_mapped_task_are_a_series(ask: Asking) -> None:
    for index, value in enumerate("abcd"):
        ask.push(value, map_index=index)
    key = {"key": "return_value", **ask.ids}
    assert ask(requests.GetXComCount(**key)).len == 4
    assert ask(requests.GetXComSequenceItem(offset=-1, **key)).root == "d"
    assert ask(requests.GetXComSequenceSlice(start=None, stop=None, step=2, **key)).root == ["a", "c"]
    refusal = ask.refused(requests.GetXComSequenceItem(offset=4, **key))
    assert (refusal.code, refusal.in_body) == (ErrorCode.XCOM_NOT_FOUND, True)


def test_earlier_runs_are_searched_only_on_request(ask: Asking) -> None:
    ask.push("of the first run")
    later = ask.stage.trigger(run_id="later", logical_date=ask.stage.now + timedelta(days=1))
    assert ask.pull(run_id=later.run_id) is None
    assert ask.pull(run_id=later.run_id, include_prior_dates=True) == "of the first run"


def test_a_deleted_xcom_is_gone(ask: Asking) -> None:
    ask.push(1)
    assert ask(requests.DeleteXCom(key="return_value", **ask.ids)) is None
    assert ask.pull() is None


def test_a_task_may_start_another_dag_once(ask: Asking) -> None:
    ask.stage.dag(task("x"), dag_id="other")
    request = requests.TriggerDagRun(dag_id="other", run_id="from d", conf={"why": "because"})
    assert ask(request).ok
    run = ask.stage.store.runs.get("other", "from d")
    assert (run.conf, run.run_type) == ({"why": "because"}, "operator_triggered")
    again = ask.refused(request)
    assert (again.code, again.in_body) == (ErrorCode.DAGRUN_ALREADY_EXISTS, True)
    missing = ask.refused(requests.TriggerDagRun(dag_id="othr", run_id="x"))
    assert "other" in (missing.detail or {})["message"]


def test_a_triggered_run_can_be_reset(ask: Asking) -> None:
    ask.stage.dag(task("x"), dag_id="other")
    request = requests.TriggerDagRun(dag_id="other", run_id="again", reset_dag_run=True)
    ask(request)
    ask.stage.tick()
    ask.stage.work()
    ask.stage.tick()
    assert ask(request).ok
    assert ask.stage.store.runs.get("other", "again").state is RunState.QUEUED


def test_questions_about_runs_and_tasks(ask: Asking) -> None:
    stage = ask.stage
    stage.trigger(run_id="before", logical_date=stage.now - timedelta(days=1))
    assert ask(requests.GetDag("d")).tags == ["sales"]
    assert ask(requests.GetDagRun("d", "now")).conf == {"size": 3}
    assert ask(requests.GetDagRunState("d", "now")).state is RunState.RUNNING
    assert ask(requests.GetPreviousDagRun("d", stage.now)).dag_run.run_id == "before"
    assert ask(requests.GetPreviousDagRun("d", stage.now, "success")).dag_run is None
    assert ask(requests.GetPrevSuccessfulDagRun("x")) == replies.PrevSuccessfulDagRunResult()
    assert ask(requests.GetDRCount(dag_id="d")).count == 2
    assert ask(requests.GetDRCount(dag_id="d", states=["running"])).count == 1
    assert ask(requests.GetTICount(dag_id="d", run_ids=["now"], task_group_id="box")).count == 2
    assert ask(requests.GetTICount(dag_id="d", run_ids=["now"], states=["running"])).count == 1
    states = ask(requests.GetTaskStates(dag_id="d", run_ids=["now"])).task_states
    assert states == {"now": {"asks": "running", "box.a": None, "box.b": None}}
    assert ask(requests.GetPreviousTI(dag_id="d", task_id="asks", logical_date=stage.now)).task_instance.state is None
    assert ask(requests.GetTaskBreadcrumbs("d", "now")).breadcrumbs == []


def test_rendered_fields_are_kept_for_people(ask: Asking) -> None:
    assert ask(requests.SetRenderedFields({"bash_command": "echo 1"})) is None
    assert ask.stage.store.questions.rendered(ask.attempt.ti_pk) == '{"bash_command":"echo 1"}'


@pytest.mark.parametrize("request_", [requests.GetHITLDetailResponse("x"), requests.UpdateHITLDetail("x", [])])
def test_what_is_not_offered_is_said_and_not_silent(ask: Asking, request_: requests.Request) -> None:
    refusal = ask.refused(request_)
    assert refusal.code is ErrorCode.API_SERVER_ERROR
    assert type(request_).__name__ in (refusal.detail or {})["message"]
