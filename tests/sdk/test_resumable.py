"""`ResumableJobMixin` in a task process: what it submits, finds again, returns, and tells others."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from support.memory_channel import MemoryChannel, run, run_beside, startup

from stannel import telemetry
from stannel.protocol.requests import DeferTask, RetryTask, SetTaskStateStore, SucceedTask, TaskState
from stannel.runner.context import context_for
from stannel.runner.execute import execute
from stannel.runner.task_instance import RuntimeTaskInstance
from stannel.sdk import DAG, BaseOperator, ResumableJobMixin
from stannel.sdk.comms import use_channel
from stannel.sdk.exceptions import AirflowFailException
from stannel.sdk.resumable_work import JobStatusUnknown
from stannel.triggers.base import BaseTrigger
from stannel.triggers.temporal import TimeDeltaTrigger

ID, TOKEN = "remote_job_id", "remote_job_id/submission"
SIX = {"submit_job", "get_job_status", "is_job_active", "is_job_succeeded", "poll_until_complete", "get_job_result"}


class System:
    """Another system with jobs, and what was asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.next_id: Any = 41
        self.status: Any = "RUNNING"
        self.error: Exception | None = None


SYSTEM = System()


@pytest.fixture(autouse=True)
def system() -> System:
    SYSTEM.__init__()  # type: ignore[misc]
    return SYSTEM


class SixMethods(ResumableJobMixin):
    """An author's six methods."""

    status_retry_delays = (0.0, 0.0)

    def execute(self, context: Any) -> Any:
        return self.execute_resumable(context)

    def submit_job(self, context: Any) -> Any:
        SYSTEM.calls.append("submit")
        SYSTEM.tokens = (self.submission_token, context["submission_token"])  # type: ignore[attr-defined]
        return SYSTEM.next_id

    def get_job_status(self, external_id: Any, context: Any) -> str:
        SYSTEM.calls.append(f"status {external_id!r}")
        if SYSTEM.error is not None:
            raise SYSTEM.error
        return str(SYSTEM.status)

    def is_job_active(self, status: str) -> bool:
        return status == "RUNNING"

    def is_job_succeeded(self, status: str) -> bool:
        return status == "DONE"

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        SYSTEM.calls.append(f"poll {external_id!r}")

    def get_job_result(self, external_id: Any, context: Any) -> Any:
        SYSTEM.calls.append(f"result {external_id!r}")
        return f"result of {external_id}"


class Job(SixMethods, BaseOperator):
    """The mixin first."""


class JobBehind(BaseOperator, SixMethods):
    """The mixin second."""

    def execute(self, context: Any) -> Any:
        return self.execute_resumable(context)


class Findable(Job):
    """Whose jobs can be found by their token."""

    found: Any = None

    def find_job(self, token: str, context: Any) -> Any:
        SYSTEM.calls.append(f"find {token}")
        return self.found


class ThreeValued(Job):
    def is_job_failed(self, status: str) -> bool:
        return status == "FAILED"


def dag_with(operator: type[Any] = Job, **arguments: Any) -> DAG:
    with DAG("d", schedule=None) as dag:
        operator(task_id="job", **arguments)
    return dag


def attempt(channel: MemoryChannel, operator: type[Any] = Job, **arguments: Any) -> Any:
    """One try; what its message says."""
    return run(dag_with(operator, **arguments), "job", channel, should_retry=True)


@pytest.fixture
def channel() -> MemoryChannel:
    return MemoryChannel()


# --- the class --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", sorted(SIX))
def test_a_class_that_lacks_a_method_makes_no_tasks_and_says_which(missing: str) -> None:
    methods = {name: getattr(SixMethods, name) for name in SIX - {missing}}
    for bases in ((ResumableJobMixin, BaseOperator), (BaseOperator, ResumableJobMixin)):
        broken = type("Broken", bases, methods)
        assert broken.__abstractmethods__ == {missing}
        with pytest.raises(TypeError, match=missing):
            broken(task_id="job")
    assert ResumableJobMixin.__abstractmethods__ == SIX  # type: ignore[attr-defined]


@pytest.mark.parametrize("operator", [Job, JobBehind])
def test_durable_is_an_argument_whichever_base_comes_first(operator: type[Any]) -> None:
    with DAG("d", schedule=None, default_args={"durable": False}) as dag:
        operator(task_id="by_default_args")
        operator(task_id="by_itself", durable=True)
    assert dag.task_dict["by_default_args"].durable is False
    assert dag.task_dict["by_itself"].durable is True
    assert dag_with(operator).task_dict["job"].durable is True
    with DAG("mapped", schedule=None) as dag:
        operator.partial(task_id="job").expand(durable=[True, False])
    assert [dag.task_dict["job"].unmap(index, {}).durable for index in (0, 1)] == [True, False]
    with pytest.raises(TypeError, match="did you mean durable"):
        operator(task_id="typo", durabel=True)


# --- what is submitted, and found again -------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", [Job, JobBehind])
def test_a_first_try_submits_notes_the_id_and_then_waits(channel: MemoryChannel, operator: type[Any]) -> None:
    assert isinstance(attempt(channel, operator), SucceedTask)
    assert SYSTEM.calls == ["submit", "poll 41", "result 41"]
    assert channel.task_state[ID] == 41
    assert channel.returned("job") == "result of 41"
    [noted] = channel.sent(SetTaskStateStore)
    assert noted.expires_at is None


@pytest.mark.parametrize("stored", [41, 0, "", False, [], {}, "job-7", {"cluster": "a", "job": 3}])
def test_a_retry_reconnects_to_whatever_id_is_stored(channel: MemoryChannel, stored: Any) -> None:
    channel.task_state[ID] = stored
    attempt(channel)
    assert SYSTEM.calls == [f"status {stored!r}", f"poll {stored!r}", f"result {stored!r}"]


@pytest.mark.parametrize("status", ["RUNNING", "DONE"])
def test_every_successful_path_returns_the_result(channel: MemoryChannel, status: str) -> None:
    SYSTEM.status, channel.task_state[ID] = status, 41
    attempt(channel)
    assert channel.returned("job") == "result of 41"
    assert "submit" not in SYSTEM.calls


def test_a_job_that_ended_otherwise_is_submitted_anew_with_another_token(channel: MemoryChannel) -> None:
    channel.task_state |= {ID: 40, TOKEN: {"token": "old"}}
    SYSTEM.status = "KILLED"
    attempt(channel)
    assert SYSTEM.calls == ["status 40", "submit", "poll 41", "result 41"]
    assert channel.task_state[ID] == 41
    assert channel.task_state[TOKEN]["token"] != "old"


def test_a_job_without_an_id_is_not_remembered(channel: MemoryChannel) -> None:
    SYSTEM.next_id = None
    attempt(channel)
    assert channel.task_state == {}
    attempt(channel)
    assert SYSTEM.calls == ["submit", "poll None", "result None"] * 2


def test_a_task_that_is_not_durable_neither_reads_nor_writes(channel: MemoryChannel) -> None:
    channel.task_state[ID] = 40
    attempt(channel, durable=False)
    assert SYSTEM.calls == ["submit", "poll 41", "result 41"]
    assert channel.task_state == {ID: 40}
    assert not [one for one in channel.asked if "StateStore" in type(one).__name__]


def test_without_a_store_it_says_so_and_submits(caplog: pytest.LogCaptureFixture) -> None:
    task = dag_with().task_dict["job"]
    assert task.execute_resumable({}) == "result of 41"
    assert "crash recovery is disabled for this run" in caplog.text


def test_another_key_finds_nothing_and_submits(channel: MemoryChannel) -> None:
    channel.task_state[ID] = 40
    renamed = type("Renamed", (Job,), {"external_id_key": "batch_job_id"})
    attempt(channel, renamed)
    assert SYSTEM.calls[0] == "submit"
    assert channel.task_state[ID] == 40
    assert channel.task_state["batch_job_id"] == 41


def test_a_store_that_knows_only_the_four_plain_methods_will_do() -> None:
    class Plain:
        def __init__(self) -> None:
            self.kept: dict[str, Any] = {}

        def get(self, key: str, default: Any = None) -> Any:
            return self.kept.get(key, default)

        def set(self, key: str, value: Any, *, retention: Any = None) -> None:
            self.kept[key] = value

        def delete(self, key: str) -> None:
            self.kept.pop(key, None)

    store, task = Plain(), dag_with().task_dict["job"]
    task.execute_resumable({"task_state_store": store})
    SYSTEM.status, SYSTEM.next_id = "FAILED", 42
    task.execute_resumable({"task_state_store": store})
    assert store.kept[ID] == 42


# --- status -----------------------------------------------------------------------------------------------------------


def test_a_status_that_cannot_be_had_is_asked_for_again_before_the_try_fails(channel: MemoryChannel) -> None:
    channel.task_state[ID] = 41
    SYSTEM.error = ConnectionError("reset")
    ended = attempt(channel)
    assert isinstance(ended, RetryTask)
    assert ended.retry_reason == "ConnectionError: reset"
    assert SYSTEM.calls == ["status 41"] * 3
    assert channel.task_state == {ID: 41}


def test_an_error_that_ends_the_task_is_not_a_missing_answer(channel: MemoryChannel) -> None:
    channel.task_state[ID] = 41
    SYSTEM.error = AirflowFailException("the account is closed")
    assert isinstance(attempt(channel), TaskState)
    assert SYSTEM.calls == ["status 41"]


def test_an_unknown_status_submits_nothing_without_consent(channel: MemoryChannel) -> None:
    channel.task_state[ID] = 41
    SYSTEM.status = "??"
    ended = attempt(channel, ThreeValued)
    assert ended.retry_reason.startswith("JobStatusUnknown: The status '??' of the job 41")
    assert SYSTEM.calls == ["status 41"] * 3
    assert channel.task_state == {ID: 41}
    assert issubclass(JobStatusUnknown, Exception)


def test_with_consent_an_unknown_status_is_taken_for_a_failure(channel: MemoryChannel) -> None:
    channel.task_state[ID] = 40
    SYSTEM.status = "??"
    attempt(channel, type("Consenting", (ThreeValued,), {"resubmit_on_unknown": True}))
    assert SYSTEM.calls[-3:] == ["submit", "poll 41", "result 41"]


def test_a_status_that_says_failed_is_believed(channel: MemoryChannel) -> None:
    channel.task_state[ID] = 40
    SYSTEM.status = "FAILED"
    attempt(channel, ThreeValued)
    assert SYSTEM.calls == ["status 40", "submit", "poll 41", "result 41"]


# --- the token --------------------------------------------------------------------------------------------------------


def test_the_token_is_stored_before_the_job_is_submitted_and_reaches_it(channel: MemoryChannel) -> None:
    class Dying(Job):
        def submit_job(self, context: Any) -> Any:
            super().submit_job(context)
            raise RuntimeError("died")

    attempt(channel, Dying)
    token = channel.task_state[TOKEN]["token"]
    assert SYSTEM.tokens == (token, token)  # type: ignore[attr-defined]
    assert ID not in channel.task_state
    assert len(token) <= 63


def test_a_job_whose_submitter_died_is_found_by_its_token(channel: MemoryChannel) -> None:
    channel.task_state[TOKEN] = {"token": "t"}
    attempt(channel, type("Lucky", (Findable,), {"found": 0}))
    assert SYSTEM.calls == ["find t", "status 0", "poll 0", "result 0"]
    assert channel.task_state[ID] == 0


def test_a_token_without_a_job_is_used_again(channel: MemoryChannel) -> None:
    channel.task_state[TOKEN] = {"token": "t"}
    attempt(channel, Findable)
    assert SYSTEM.calls == ["find t", "submit", "poll 41", "result 41"]
    assert SYSTEM.tokens == ("t", "t")  # type: ignore[attr-defined]


def test_without_find_job_a_retry_says_that_there_may_be_two(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    channel.task_state[TOKEN] = {"token": "t"}
    attempt(channel)
    assert "there may be two" in caplog.text
    assert SYSTEM.tokens == ("t", "t")  # type: ignore[attr-defined]


# --- the other two callers --------------------------------------------------------------------------------------------


class AsyncJob(SixMethods, BaseOperator):
    async def execute(self, context: Any) -> Any:
        return await self.aexecute_resumable(context)

    async def submit_job(self, context: Any) -> Any:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().submit_job(context)

    async def get_job_status(self, external_id: Any, context: Any) -> str:  # type: ignore[override]
        return super().get_job_status(external_id, context)

    async def poll_until_complete(self, external_id: Any, context: Any) -> None:  # type: ignore[override]
        super().poll_until_complete(external_id, context)


def test_an_async_operator_decides_the_same(channel: MemoryChannel) -> None:
    dag = dag_with(AsyncJob)
    assert isinstance(run_beside(dag, "job", channel), SucceedTask)
    SYSTEM.error = ConnectionError("reset")
    assert run_beside(dag, "job", channel, should_retry=True).retry_reason == "ConnectionError: reset"
    SYSTEM.error = None
    run_beside(dag, "job", channel)
    assert SYSTEM.calls == [
        *("submit", "poll 41", "result 41"),
        *["status 41"] * 3,
        *("status 41", "poll 41", "result 41"),
    ]


def test_async_methods_of_a_plain_operator_are_refused_by_name(channel: MemoryChannel) -> None:
    plain = type("Plain", (AsyncJob,), {"execute": Job.execute})
    assert "aexecute_resumable" in attempt(channel, plain).retry_reason
    assert SYSTEM.calls == []


class DeferringJob(SixMethods, BaseOperator):
    def execute(self, context: Any) -> Any:
        return self.defer_resumable(context, trigger=self.trigger_for, method_name="go_on", kwargs={"more": 1})

    def trigger_for(self, external_id: Any) -> BaseTrigger:
        return TimeDeltaTrigger(timedelta(seconds=external_id))

    def go_on(self, context: Any, event: Any, external_id: Any, more: int) -> Any:
        return self.get_job_result(external_id, context)


def test_a_deferring_operator_hands_the_wait_to_its_trigger(channel: MemoryChannel) -> None:
    deferred = attempt(channel, DeferringJob)
    assert isinstance(deferred, DeferTask)
    assert (deferred.next_method, deferred.next_kwargs) == ("go_on", {"more": 1, "external_id": 41})
    assert SYSTEM.calls == ["submit"]
    assert channel.task_state[ID] == 41


def test_a_deferring_operator_reconnects_and_need_not_wait_for_a_job_that_is_done(channel: MemoryChannel) -> None:
    channel.task_state[ID] = 41
    assert isinstance(attempt(channel, DeferringJob), DeferTask)
    SYSTEM.status = "DONE"
    assert isinstance(attempt(channel, DeferringJob), SucceedTask)
    assert channel.returned("job") == "result of 41"
    assert "submit" not in SYSTEM.calls


# --- what others are told ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "status", "counted"),
    [
        (None, "", ["fresh_submit"]),
        (41, "RUNNING", ["reconnect_attempt", "reconnect_success"]),
        (41, "DONE", ["already_succeeded"]),
        (41, "FAILED", ["terminal_resubmit"]),
    ],
)
def test_every_decision_is_counted(channel: MemoryChannel, stored: Any, status: str, counted: list[str]) -> None:
    channel.task_state |= {} if stored is None else {ID: stored}
    SYSTEM.status, told = status, []
    with telemetry.listening(lambda name, tags: told.append((name, dict(tags)))):
        attempt(channel)
    assert told == [(f"resumable_job.{name}", {"operator": "Job"}) for name in counted]


def test_the_context_of_every_task_has_its_store_under_both_names(channel: MemoryChannel) -> None:
    dag = dag_with()
    greeting = startup("d", "job")
    with use_channel(channel):
        context = context_for(greeting, dag.task_dict["job"], RuntimeTaskInstance(greeting, dag.task_dict["job"]))
        context["task_store"].set("a", 1)
        assert context["task_state_store"].get("a") == 1
        assert context["task_store"] is context["task_state_store"]
    assert isinstance(execute(greeting, {"d": dag}, channel), SucceedTask)
