"""The operators that come with the SDK, run as tasks."""

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.memory_channel import MemoryChannel, run, run_beside

from stannel.protocol.requests import (
    SkipDownstreamTasks,
    SucceedTask,
)
from stannel.sdk import DAG, BaseOperator, Label, task
from stannel.sdk.operators import (
    BashOperator,
    BranchPythonOperator,
    EmptyOperator,
    PythonOperator,
    ShortCircuitOperator,
)


@pytest.fixture
def channel() -> MemoryChannel:
    return MemoryChannel()


# --- branches --------------------------------------------------------------------------------------------------------
def branching(choice: Any) -> DAG:
    with DAG("d") as dag:

        @task.branch
        def choose() -> Any:
            return choice

        a, b, c = (EmptyOperator(task_id=name) for name in "abc")
        join = EmptyOperator(task_id="join")
        choose() >> Label("way") >> [a, b, c] >> join
        choose.override(task_id="direct")() >> [join, b]
    return dag


def skipped_by(dag: DAG, task_id: str, channel: MemoryChannel) -> list[Any]:
    assert isinstance(run(dag, task_id, channel), SucceedTask)
    return [task_id for body in channel.sent(SkipDownstreamTasks) for task_id in body.tasks]


@pytest.mark.parametrize(
    ("choice", "skipped"), [("a", ["b", "c"]), (["a", "b"], ["c"]), (None, ["a", "b", "c"]), ([], ["a", "b", "c"])]
)
def test_a_branch_skips_what_it_did_not_choose(channel: MemoryChannel, choice: Any, skipped: list[str]) -> None:
    assert skipped_by(branching(choice), "choose", channel) == skipped


def test_a_task_behind_the_chosen_one_is_kept(channel: MemoryChannel) -> None:
    assert skipped_by(branching("b"), "direct", channel) == []


def test_a_branch_to_nowhere_fails_with_a_suggestion(channel: MemoryChannel, caplog: pytest.LogCaptureFixture) -> None:
    assert run(branching("joim"), "choose", channel).state == "failed"
    assert "did you mean join?" in caplog.text


def test_an_async_branch_is_awaited_before_it_decides(channel: MemoryChannel) -> None:
    async def choose() -> str:
        return "a"

    with DAG("d") as dag:
        BranchPythonOperator(task_id="choose", python_callable=choose) >> [
            EmptyOperator(task_id="a"),
            EmptyOperator(task_id="b"),
        ]
    run_beside(dag, "choose", channel)
    assert [body.tasks for body in channel.sent(SkipDownstreamTasks)] == [["b"]]


@pytest.mark.parametrize(("answer", "skipped"), [(True, []), (0, ["a", "b"])])
def test_a_short_circuit_skips_everything_behind_it(channel: MemoryChannel, answer: Any, skipped: list[str]) -> None:
    with DAG("d") as dag:
        stop = ShortCircuitOperator(task_id="stop", python_callable=lambda: answer)
        stop >> EmptyOperator(task_id="a") >> EmptyOperator(task_id="b")
    assert skipped_by(dag, "stop", channel) == skipped


def test_a_short_circuit_may_leave_later_tasks_to_their_trigger_rules(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task.short_circuit(ignore_downstream_trigger_rules=False)
        def stop() -> bool:
            return False

        stop() >> EmptyOperator(task_id="a") >> EmptyOperator(task_id="b", trigger_rule="all_done")
    assert skipped_by(dag, "stop", channel) == ["a"]


# --- operators -------------------------------------------------------------------------------------------------------
def test_bash_gives_its_last_line_and_knows_who_it_is(channel: MemoryChannel) -> None:
    with DAG("d") as dag:
        BashOperator(task_id="t", bash_command='echo one; echo "$STANNEL_CTX_DAG_ID/$AIRFLOW_CTX_TASK_ID"')
    run(dag, "t", channel)
    assert channel.returned("t") == "d/t"


@pytest.mark.parametrize(("code", "state"), [(1, "failed"), (99, "skipped")])
def test_bash_exit_codes_decide(channel: MemoryChannel, code: int, state: str) -> None:
    with DAG("d") as dag:
        BashOperator(task_id="t", bash_command=f"exit {code}")
    assert run(dag, "t", channel).state == state


def test_a_bash_command_over_its_time_is_killed(channel: MemoryChannel, tmp_path: Any) -> None:
    with DAG("d") as dag:
        BashOperator(
            task_id="t",
            bash_command="echo $$ > pid; exec sleep 60",
            cwd=str(tmp_path),
            execution_timeout=timedelta(seconds=0.5),
        )
    assert run(dag, "t", channel).state == "failed"
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_function_can_give_the_bash_command(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task.bash(env={"X": "7"}, append_env=True)
        def command(word: str) -> str:
            return f"echo {word} $X {{{{ ds }}}}"

        command("hello")
    run(dag, "command", channel)
    assert channel.returned("command") == "hello 7 2026-11-15"


def test_run_if_and_skip_if_decide_before_the_task(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task.run_if(lambda context: context["params"].get("go"))
        @task
        def only_if() -> str:
            return "ran"

        @task.skip_if(lambda context: True, "never")
        @task
        def never() -> str:
            return "ran"

        only_if()
        never()
    assert run(dag, "only_if", channel).state == "skipped"
    assert isinstance(run(dag, "only_if", channel, conf={"go": True}), SucceedTask)
    assert run(dag, "never", channel).state == "skipped"


def test_hooks_around_execute_run_in_order(channel: MemoryChannel) -> None:
    calls: list[str] = []

    class Custom(BaseOperator):
        template_fields = ("word",)

        def __init__(self, word: str, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.word = word

        def pre_execute(self, context: Any) -> None:
            calls.append("pre")

        def execute(self, context: Any) -> str:
            calls.append(self.word)
            return self.word

        def post_execute(self, context: Any, result: Any = None) -> None:
            calls.append(f"post {result}")

    with DAG("d") as dag:
        Custom(task_id="t", word="{{ ds }}")
    run(dag, "t", channel)
    assert calls == ["pre", "2026-11-15", "post 2026-11-15"]


def test_end_dates_are_moments_in_utc(channel: MemoryChannel) -> None:
    before = datetime.now(UTC)
    with DAG("d") as dag:
        PythonOperator(task_id="t", python_callable=lambda: 1)
    result = run(dag, "t", channel)
    assert before <= result.end_date <= datetime.now(UTC)
