"""What authors write is what happens: one running engine, many small DAGs."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stannel.store.entries import StoredConnection
from stannel.testing import Engine

DAGS = """
    import asyncio, os, signal, subprocess, sys, time
    from datetime import datetime, timedelta, timezone
    from stannel.sdk import DAG, Connection, TaskGroup, Variable, chain, dag, get_current_context, task
    from stannel.sdk.operators import BashOperator, EmptyOperator, PythonOperator

    with DAG("xcoms", schedule=None):
        @task
        def numbers(): return [1, 2, 3]
        @task
        async def doubled(x):
            await asyncio.sleep(0)
            return x * 2
        @task
        def total(xs): return sum(xs)
        @task(multiple_outputs=True)
        def several(): return {"a": 1, "b": datetime(2026, 1, 1, tzinfo=timezone.utc)}
        several()
        total(doubled.expand(x=numbers()))

    with DAG("branches", schedule=None):
        @task.branch
        def choose(): return "left"
        @task.short_circuit
        def closed(): return False
        left, right = EmptyOperator(task_id="left"), EmptyOperator(task_id="right")
        join = EmptyOperator(task_id="join", trigger_rule="none_failed_min_one_success")
        behind = EmptyOperator(task_id="behind")
        choose() >> [left, right] >> join
        join >> closed() >> behind

    with DAG("templates", schedule=None, params={"name": "world"}):
        words = "hello {{ params.name }} from {{ dag_run.run_id }} {{ var.value.city }}"
        BashOperator(task_id="hello", bash_command=f"echo {words}")

    with DAG("retries", schedule=None):
        @task(retries=2, retry_delay=timedelta(milliseconds=10))
        def third_time_lucky(ti=None):
            if ti.try_number < 3:
                raise RuntimeError(f"try {ti.try_number} fails")
            return ti.try_number
        third_time_lucky()

    with DAG("ends", schedule=None):
        @task(execution_timeout=timedelta(seconds=0.3))
        def too_slow(): time.sleep(60)
        @task
        def killed(): os.kill(os.getpid(), signal.SIGKILL)
        @task
        def leaves_quietly(): os._exit(0)
        @task
        def says_exit(): sys.exit("bye")
        @task
        def skips():
            from stannel.sdk.exceptions import AirflowSkipException
            raise AirflowSkipException("nothing to do")
        too_slow(), killed(), leaves_quietly(), says_exit(), skips()

    def note(context):
        with open(os.environ["STORY_NOTES"], "a") as notes:
            notes.write(f"{context['dag'].dag_id}.{context['ti'].task_id}\\n")

    with DAG("callbacks", schedule=None, on_failure_callback=note):
        @task(on_success_callback=note)
        def good(): pass
        @task(on_failure_callback=note)
        def bad(): raise ValueError("bad")
        @task(on_failure_callback=note)
        def dies(): os.kill(os.getpid(), signal.SIGKILL)
        good(), bad(), dies()

    with DAG("secrets", schedule=None):
        @task
        def leaks():
            connection = Connection.get("db")
            print("password is", connection.password)
            print("token is", Variable.get("api_token"))
            print("another is", Connection.get("from_env").password, Variable.get("other_token"))
            print("city is", Variable.get("city"))
            assert "SQL_ALCHEMY_CONN" not in " ".join(os.environ)
        leaks() >> BashOperator(task_id="renders", bash_command="echo {{ conn.db.password }}")

    with DAG("family", schedule=None):
        @task
        def leaves_a_child():
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            return child.pid
        leaves_a_child()

    with DAG("waits", schedule=None):
        @task
        def until_told():
            print("waiting")
            while not os.path.exists(os.environ["STORY_GO"]):
                time.sleep(0.01)
        until_told()

    with DAG("groups", schedule=None):
        with TaskGroup("outer"):
            first = EmptyOperator(task_id="first")
            with TaskGroup("inner"):
                second = EmptyOperator(task_id="second")
        chain(first, second)
"""

AIRFLOW = """
    from airflow.sdk import DAG, task
    from airflow.providers.standard.operators.bash import BashOperator

    with DAG("from_airflow", schedule=None) as dag:
        @task
        def greet(): return "hello"
        greet() >> BashOperator(task_id="shell", bash_command="echo done")
"""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("features")
    database = None
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        database = server.url(server.create_database())
    with Engine(folder, database=database, settings={"STANNEL__CORE__KILLED_TASK_CLEANUP_TIME": "1"}) as engine:
        engine.environ |= {"STORY_NOTES": str(folder / "notes"), "STORY_GO": str(folder / "go")}
        engine.environ |= {"STANNEL_CONN_FROM_ENV": "http://me:env-5ecret@h", "STANNEL_VAR_OTHER_TOKEN": "env-t0ken"}
        engine.store.variables.save("city", "Utrecht")
        engine.store.variables.save("api_token", "tok-5ecret-value")
        engine.store.connections.save(StoredConnection(conn_id="db", conn_type="postgres", password="p4ssw0rd-x"))
        engine.add_dag_file("features.py", DAGS)
        engine.add_dag_file("from_airflow.py", AIRFLOW)
        engine.start()
        yield engine


def xcom(engine: Engine, run: object, task_id: str, key: str = "return_value") -> object:
    found = engine.store.xcoms.get(run.pk, task_id, -1, key)  # type: ignore[attr-defined]
    return None if found is None else json.loads(found)


def test_values_travel_and_a_mapped_async_task_runs_for_each(engine: Engine) -> None:
    run = engine.run("xcoms")
    assert run.state == "success", engine.states(run)
    assert xcom(engine, run, "total") == 12
    assert xcom(engine, run, "several", "a") == 1
    assert engine.states(run)["doubled[2]"] == "success"


def test_branches_are_followed_and_the_others_skipped(engine: Engine) -> None:
    run = engine.run("branches")
    assert engine.states(run) == {
        "choose": "success",
        "left": "success",
        "right": "skipped",
        "join": "success",
        "closed": "success",
        "behind": "skipped",
    }


def test_templates_are_rendered(engine: Engine) -> None:
    run = engine.run("templates", conf={"name": "reader"})
    assert f"hello reader from {run.run_id} Utrecht" in engine.task_log(run, "hello")


def test_a_task_is_tried_as_often_as_its_author_allows(engine: Engine) -> None:
    run = engine.run("retries")
    assert run.state == "success"
    assert xcom(engine, run, "third_time_lucky") == 3
    assert "try 1 fails" in engine.task_log(run, "third_time_lucky", attempt=1)
    assert [str(one.state) for one in engine.store.attempts.of_run(run)] == ["failed", "failed", "success"]


def test_every_way_to_end_is_told_apart(engine: Engine) -> None:
    run = engine.run("ends")
    tasks = engine.tasks(run)
    assert {name: str(one.state) for name, one in tasks.items()} == {
        "too_slow": "failed",
        "killed": "failed",
        "leaves_quietly": "failed",
        "says_exit": "failed",
        "skips": "skipped",
    }
    assert "SIGKILL" in (tasks["killed"].note or "")
    assert "without reporting" in (tasks["leaves_quietly"].note or "")
    assert "timeout" in engine.task_log(run, "too_slow").lower()
    assert "nothing to do" in engine.task_log(run, "skips")


def test_callbacks_run_even_for_a_task_whose_process_died(engine: Engine) -> None:
    run = engine.run("callbacks")
    notes = Path(engine.environ["STORY_NOTES"])
    expected = {"callbacks.good", "callbacks.bad", "callbacks.dies"}

    def all_there() -> bool:
        # The DAG's own callback names one of its failed tasks, so there is a fourth line.
        return notes.exists() and len(notes.read_text().splitlines()) == 4

    engine.wait_until(all_there, seconds=20, what=f"the callbacks of {run.run_id} did not all run")
    assert set(notes.read_text().splitlines()) == expected


def test_secrets_do_not_reach_the_log_nor_the_database_the_task(engine: Engine) -> None:
    run = engine.run("secrets")
    log = engine.task_log(run, "leaks")
    assert run.state == "success", log
    assert "p4ssw0rd-x" not in log
    assert "tok-5ecret-value" not in log
    assert "another is *** ***" in log
    rendered = engine.store.questions.rendered(engine.tasks(run)["renders"].pk)
    assert rendered is not None
    assert "p4ssw0rd-x" not in rendered
    assert "password is ***" in log
    assert "city is Utrecht" in log


def test_nothing_a_task_started_outlives_it(engine: Engine) -> None:
    run = engine.run("family")
    pid = xcom(engine, run, "leaves_a_child")
    engine.wait_until(lambda: not Path(f"/proc/{pid}").exists(), seconds=10, what=f"the child {pid} still lives")


def test_a_log_can_be_read_while_the_task_runs_and_a_user_can_stop_it(engine: Engine) -> None:
    run = engine.trigger("waits")

    def is_waiting() -> bool:
        try:
            return '"waiting"' in engine.task_log(run, "until_told")
        except FileNotFoundError:
            return False

    engine.wait_until(is_waiting, seconds=20, what="the log did not show the task's words")
    instance = engine.tasks(run)["until_told"]
    began = time.monotonic()
    engine.store.tasks.set_state(run, [instance.pk], instance.state.FAILED, now=run.run_after)
    assert engine.wait_for_run(run).state == "failed"
    gone = lambda: "ended" in engine.task_log(run, "until_told").lower()  # noqa: E731
    engine.wait_until(gone, seconds=20, what=f"the process was not stopped, {time.monotonic() - began:.0f} s later")


def test_groups_name_their_tasks(engine: Engine) -> None:
    assert engine.states(engine.run("groups")) == {"outer.first": "success", "outer.inner.second": "success"}


def test_a_file_written_for_airflow_runs(engine: Engine) -> None:
    run = engine.run("from_airflow")
    assert engine.states(run) == {"greet": "success", "shell": "success"}
