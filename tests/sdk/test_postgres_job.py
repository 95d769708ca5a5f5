"""`PostgresJobOperator` against a real server: its SQL goes on when the client dies, and takes effect once."""

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from support.memory_channel import MemoryChannel, run

from stannel.protocol.replies import ConnectionResult
from stannel.protocol.requests import RetryTask, SucceedTask
from stannel.sdk import DAG
from stannel.sdk.operators import PostgresJobOperator

SECONDS = 30.0
ID, TOKEN = "postgres_job", "postgres_job/submission"
# Takes effect when the row `go` is there, and not before.
SLOW = """
    DO $$ BEGIN
        WHILE NOT EXISTS (SELECT 1 FROM gate) LOOP PERFORM pg_sleep(0.02); END LOOP;
        RAISE NOTICE 'nobody hears this';
    END $$;
    INSERT INTO effects VALUES ('x')
"""


class Server:
    """The test's database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.execute("CREATE TABLE effects (what TEXT); CREATE TABLE gate (open INT)")

    def execute(self, statement: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def open_gate(self) -> None:
        self.execute("INSERT INTO gate VALUES (1)")

    def effects(self) -> int:
        return len(self.execute("SELECT * FROM effects"))

    def running(self, token: str) -> int:
        query = f"SELECT 1 FROM pg_stat_activity WHERE application_name = '{token}' AND state = 'active'"
        return len(self.execute(query))

    def eventually(self, look: Callable[[], Any]) -> None:
        deadline = time.monotonic() + SECONDS
        while not look():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.02)


@pytest.fixture
def server(postgres_url: str) -> Server:
    return Server(postgres_url)


@pytest.fixture
def channel(server: Server) -> MemoryChannel:
    channel = MemoryChannel()
    info = psycopg.conninfo.conninfo_to_dict(server.url)
    channel.connections["pg"] = ConnectionResult(
        conn_id="pg",
        conn_type="postgres",
        host=str(info["host"]),
        schema=str(info["dbname"]),
        login=str(info["user"]),
        password=None,
        port=int(str(info["port"])),
        extra=None,
    )
    return channel


def dag_with(sql: str = SLOW, **arguments: Any) -> DAG:
    with DAG("d", schedule=None) as dag:
        PostgresJobOperator(task_id="job", sql=sql, conn_id="pg", poll_interval=0.05, **arguments)
    return dag


def submit_and_die(server: Server, token: str) -> None:
    """Another process submits the SQL with this token and is killed before it can note anything."""
    program = f"""
        import os, signal
        from stannel.sdk.operators import PostgresJobOperator
        task = PostgresJobOperator(task_id="job", conn_id="pg", sql={SLOW!r})
        task.submission_token = {token!r}
        task.submit_job(None)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    env = {"STANNEL_CONN_PG": server.url.replace("postgresql://", "postgres://")}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=env, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr


def test_the_sql_takes_effect_and_the_result_is_asked_for_afterwards(server: Server, channel: MemoryChannel) -> None:
    server.open_gate()
    dag = dag_with(result_sql="SELECT count(*) FROM effects")
    for _ in range(2):
        assert isinstance(run(dag, "job", channel), SucceedTask)
        assert channel.returned("job") == [[1]]
    assert channel.task_state[ID] == channel.task_state[TOKEN]["token"]


def test_sql_that_the_server_refuses_fails_the_try_in_its_words(server: Server, channel: MemoryChannel) -> None:
    ended = run(dag_with("INSERT INTO effects VALUES ('y'); SELECT 1/0"), "job", channel, should_retry=True)
    assert isinstance(ended, RetryTask)
    assert "division by zero" in (ended.retry_reason or "")
    assert server.effects() == 0
    before = channel.task_state[TOKEN]
    server.open_gate()
    assert isinstance(run(dag_with(), "job", channel), SucceedTask)
    assert channel.task_state[TOKEN] != before


def test_sql_whose_client_died_goes_on_is_found_and_waited_for(server: Server, channel: MemoryChannel) -> None:
    submit_and_die(server, "token-1")
    server.eventually(lambda: server.running("token-1"))
    channel.task_state[TOKEN] = {"token": "token-1"}
    task = dag_with().task_dict["job"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STANNEL_CONN_PG", server.url.replace("postgresql://", "postgres://"))
        assert task.find_job("token-1", None) == "token-1"
        assert task.find_job("token-2", None) is None
    server.open_gate()
    assert isinstance(run(dag_with(), "job", channel), SucceedTask)
    assert server.effects() == 1
    assert channel.task_state[ID] == "token-1"


def test_sql_that_ended_while_nobody_looked_is_not_run_again(server: Server, channel: MemoryChannel) -> None:
    server.open_gate()
    submit_and_die(server, "token-1")
    server.eventually(server.effects)
    channel.task_state[TOKEN] = {"token": "token-1"}
    assert isinstance(run(dag_with(), "job", channel), SucceedTask)
    assert server.effects() == 1


def test_a_second_submission_of_the_same_token_takes_no_effect(server: Server, channel: MemoryChannel) -> None:
    server.open_gate()
    submit_and_die(server, "token-1")
    submit_and_die(server, "token-1")
    server.eventually(lambda: server.effects() and not server.running("token-1"))
    assert server.effects() == 1


def test_a_killed_task_cancels_its_sql(server: Server, channel: MemoryChannel) -> None:
    submit_and_die(server, "token-1")
    server.eventually(lambda: server.running("token-1"))
    task = dag_with().task_dict["job"]
    task.submission_token = "token-1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STANNEL_CONN_PG", server.url.replace("postgresql://", "postgres://"))
        task.on_kill()
        server.eventually(lambda: not server.running("token-1"))
        assert task.get_job_status("token-1", None) == "ROLLED BACK"
    assert server.effects() == 0
