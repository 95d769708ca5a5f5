"""Whatever is wrong with a DAG or its surroundings gets a clear error in one place, and nothing else stops."""

import subprocess
import sys
from pathlib import Path

import pytest

from stannel.testing import Engine

GOOD = """
    from stannel.sdk import DAG, task
    with DAG("good", schedule=None):
        @task
        def fine(): print("all is well")
        fine()
"""

BROKEN_FILES = {
    "cycle": (
        """
        from stannel.sdk import DAG
        from stannel.sdk.operators import EmptyOperator
        with DAG("circular", schedule=None):
            a, b, c = (EmptyOperator(task_id=name) for name in "abc")
            a >> b >> c >> a
        """,
        ["circular", "a >> b >> c >> a"],
    ),
    "duplicate task id": (
        """
        from stannel.sdk import DAG
        from stannel.sdk.operators import EmptyOperator
        with DAG("twice", schedule=None):
            EmptyOperator(task_id="same")
            EmptyOperator(task_id="same")
        """,
        ["twice", "same"],
    ),
    "bad cron": (
        """
        from stannel.sdk import DAG
        from stannel.sdk.operators import EmptyOperator
        with DAG("never_right", schedule="61 * * * *"):
            EmptyOperator(task_id="a")
        """,
        ["never_right", "61 * * * *"],
    ),
    "raises": (
        "from stannel.sdk import DAG  # dag\nraise RuntimeError('the sky fell')",
        ["RuntimeError", "the sky fell"],
    ),
    "syntax error": ("from stannel.sdk import DAG  # dag\ndef broken(:\n    pass\n", ["SyntaxError", "line 2"]),
    "hangs": ("from stannel.sdk import DAG  # dag\nimport time\ntime.sleep(600)", ["2 s"]),
    "os._exit": ("from stannel.sdk import DAG  # dag\nimport os\nos._exit(3)", ["3"]),
}


@pytest.fixture
def running(sqlite_engine: Engine) -> Engine:
    sqlite_engine.environ["STANNEL__CORE__DAGBAG_IMPORT_TIMEOUT"] = "2"
    sqlite_engine.add_dag_file("good.py", GOOD)
    return sqlite_engine


def test_each_broken_file_is_one_error_and_the_good_one_runs(running: Engine) -> None:
    for name, (source, _) in BROKEN_FILES.items():
        running.add_dag_file(f"{name.replace(' ', '_').replace('.', '')}.py", source)
    running.start()
    assert running.run("good").state == "success"

    def all_errors() -> dict[str, str]:
        found = {file.path: file.error for file in running.store.dags.files() if file.error}
        return found if len(found) == len(BROKEN_FILES) else {}

    errors = running.wait_until(all_errors, seconds=30, what="not every broken file was reported")
    for name, (_, words) in BROKEN_FILES.items():
        path = f"{name.replace(' ', '_').replace('.', '')}.py"
        for word in words:
            assert word in errors[path], f"{name}: {errors[path]}"
        assert path in errors[path] or name in {"os._exit", "hangs"}, f"{name}: {errors[path]}"
    assert running.run("good").state == "success"


def test_a_file_that_breaks_and_is_mended_goes_on(running: Engine) -> None:
    running.start()
    running.wait_for_dag("good")
    running.add_dag_file("good.py", GOOD + "\n    raise ValueError('oops')")
    running.wait_until(
        lambda: any(file.error for file in running.store.dags.files()), seconds=10, what="the error was not noticed"
    )
    running.add_dag_file("good.py", GOOD)
    running.wait_for_dag("good")
    assert running.run("good").state == "success"


def test_a_huge_xcom_fails_its_task_and_says_why(running: Engine) -> None:
    running.add_dag_file(
        "huge.py",
        """
        from stannel.sdk import DAG, task
        with DAG("huge", schedule=None):
            @task
            def too_much(): return "x" * 200_000_000
            too_much()
        """,
    )
    running.start()
    run = running.run("huge")
    assert running.states(run) == {"too_much": "failed"}
    log = running.task_log(run, "too_much")
    assert "xcom" in log.lower()
    assert "too_much" in log or "return_value" in log
    assert running.run("good").state == "success"


def test_a_return_value_that_cannot_be_stored_fails_its_task_and_says_which(running: Engine) -> None:
    running.add_dag_file(
        "odd.py",
        """
        from stannel.sdk import DAG, task
        with DAG("odd", schedule=None):
            @task
            def returns_a_socket():
                import socket
                return {"deep": [1, socket.socket()]}
            returns_a_socket()
        """,
    )
    running.start()
    run = running.run("odd")
    assert running.states(run) == {"returns_a_socket": "failed"}
    log = running.task_log(run, "returns_a_socket")
    assert "socket" in log
    assert "deep" in log


def test_a_read_only_database_is_refused_with_a_sentence(sqlite_engine: Engine, tmp_path: Path) -> None:
    sqlite_engine.environ["STANNEL__DATABASE__SQL_ALCHEMY_CONN"] = "sqlite:////proc/stannel.db"
    ended = subprocess.run(
        [sys.executable, "-m", "stannel.cli.main", "dags", "list"],
        env=sqlite_engine.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "/proc/stannel.db" in ended.stderr
