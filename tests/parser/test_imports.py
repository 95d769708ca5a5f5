"""Whatever a DAG file does to its process: one clear error for that file, and nothing else is disturbed."""

import logging
import os
import signal
from pathlib import Path

import pytest

from stannel.parser.imports import Imports

HEAD = "import os, signal, sys, threading, time\nfrom stannel.sdk import DAG\n"


def is_running(pid: int) -> bool:
    """A zombie that nobody has reaped yet does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


BAD_FILES = {
    "raises": ("raise ValueError('no such table')", "line 3: ValueError: no such table"),
    "raises without words": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "raises unprintably": ("class E(Exception):\n    __str__ = None\nraise E", "could not be imported"),
    "leaves at once": ("os._exit(3)", "the process that imported it exited with code 3"),
    "leaves at once, politely": ("os._exit(0)", "the process that imported it exited with code 0"),
    "exits": ("sys.exit(4)", "line 3: SystemExit: 4"),
    "is terminated": ("os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)", "was killed by SIGTERM"),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL"),
    "crashes": ("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV"),
    "recurses": ("def f():\n    f()\nf()", "RecursionError"),
    "recurses in C": ("sys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**5): x = [x]\nrepr(x)", "SIGSEGV"),
    "is not Python": ("with DAG('half'\n", "line 3: "),
    "has a null byte": ("\0", "null bytes"),
    "closes everything": ("os.closerange(0, 100)", "exited with code 1"),
    "is no DAG": ("dag = DAG('spaces are wrong')", "spaces are wrong"),
    "imports nothing": ("import no_such_module", "No module named 'no_such_module'"),
    "imports unknown": ("from airflow.sdk import Nonsense", "Nonsense"),
    "repeats a task": (
        "from stannel.sdk import BaseOperator as Op\nwith DAG('twice'):\n    [Op(task_id='a') for _ in '12']",
        "'twice'",
    ),
    "repeats a DAG": ("one = DAG('same')\ntwo = DAG('same')", "two DAGs with this id"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_error_that_names_it_and_no_other_file_suffers(place, name):
    source, expected = BAD_FILES[name]
    (place.folder / "bad.py").write_text(HEAD + source)
    place.write_dag("good.py", "good")
    place.parse()
    assert expected in place.error("bad.py")
    assert "bad.py" in place.error("bad.py")
    assert place.files()["good.py"].error is None
    assert place.dag_ids() == ["good"]


def test_an_error_shows_the_lines_of_the_author_and_no_others(place):
    place.write("tools.py", "def count(rows):\n    return len(rows)")
    place.write("bad.py", "# stannel dag\nfrom tools import count\n\ncount(7)")
    place.parse()
    error = place.error("bad.py")
    assert error.splitlines()[0] == (
        "bad.py could not be imported: line 4: TypeError: object of type 'int' has no len(). "
        "Its DAGs get no new runs until it can be."
    )
    assert f'File "{place.folder / "bad.py"}", line 4, in <module>' in error
    assert f'File "{place.folder / "tools.py"}", line 2, in count' in error
    assert "count(7)" in error
    assert "importlib" not in error
    assert "sdk/load.py" not in error


HANGING_FILES = {
    "sleeps": "time.sleep(600)",
    "does not listen": "while True:\n    try:\n        time.sleep(600)\n    except BaseException:\n        pass",
    "is deaf": "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(600)",
}


@pytest.mark.parametrize("environ", [{"STANNEL__CORE__DAGBAG_IMPORT_TIMEOUT": "1"}])
@pytest.mark.parametrize("name", HANGING_FILES)
def test_a_hanging_file_is_ended_and_no_other_file_suffers(place, name):
    (place.folder / "slow.py").write_text(HEAD + HANGING_FILES[name])
    place.write_dag("good.py", "good")
    place.parse()
    assert "slow.py could not be imported: it took longer than 1 s to import." in place.error("slow.py")
    assert place.dag_ids() == ["good"]


@pytest.mark.parametrize("environ", [{"STANNEL__CORE__DAGBAG_IMPORT_TIMEOUT": "1"}])
def test_a_hanging_file_tells_the_line_it_hangs_at(place):
    place.write("slow.py", "import stannel.sdk, time  # dag\n\nprint('on my way')\ntime.sleep(600)")
    place.parse()
    assert place.error("slow.py").splitlines()[1:] == [
        "It was here when its time was up:",
        f'  File "{place.folder / "slow.py"}", line 4, in <module>',
        "    time.sleep(600)",
    ]


def test_a_sudden_end_shows_what_was_printed_last(place):
    (place.folder / "bad.py").write_text(HEAD + "print('connecting to the moon', flush=True)\nos._exit(1)")
    place.parse()
    assert place.error("bad.py").endswith("The last it printed:\nconnecting to the moon")


def test_megabytes_of_output_do_no_harm(place, caplog):
    (place.folder / "loud.py").write_text(
        HEAD + "for _ in range(3000):\n    print('x' * 1000)\n    print('y' * 1000, file=sys.stderr)\ndag = DAG('loud')"
    )
    with caplog.at_level(logging.DEBUG, "stannel.parser"):
        place.parse()
    assert place.dag_ids() == ["loud"]
    printed = [record.getMessage() for record in caplog.records if "printed while" in record.message]
    assert len(printed) == 1
    assert len(printed[0]) < 100_000


def test_threads_do_no_harm(place):
    (place.folder / "threads.py").write_text(
        HEAD + "for _ in range(5):\n    threading.Thread(target=time.sleep, args=(600,)).start()\ndag = DAG('threads')"
    )
    place.parse()
    assert place.dag_ids() == ["threads"]


@pytest.mark.parametrize("environ", [{"STANNEL__CORE__DAGBAG_IMPORT_TIMEOUT": "2"}])
@pytest.mark.parametrize("ending", ["dag = DAG('parent')", "time.sleep(600)", "os._exit(1)"])
def test_processes_that_a_file_starts_end_with_its_import(place, tmp_path, ending):
    pids = tmp_path / "pids"
    (place.folder / "parent.py").write_text(
        HEAD + "import subprocess\n"
        "running = subprocess.Popen(['sleep', '600'])\n"
        "forked = os.fork()\n"
        "if forked == 0:\n    time.sleep(600)\n"
        f"open({str(pids)!r}, 'w').write(f'{{running.pid}} {{forked}}')\n" + ending
    )
    place.parse()
    assert [pid for pid in map(int, pids.read_text().split()) if is_running(pid)] == []
    assert place.dag_ids() == (["parent"] if ending.startswith("dag") else [])


def test_a_fork_that_runs_into_the_end_of_the_file_says_nothing(place):
    (place.folder / "forks.py").write_text(HEAD + "os.fork()\ndag = DAG('forks')")
    place.parse()
    assert place.dag_ids() == ["forks"]
    assert place.files()["forks.py"].error is None


def test_the_good_dags_of_a_file_are_kept_when_others_of_it_are_bad(place):
    place.write(
        "mixed.py",
        """
        from stannel.sdk import DAG
        from stannel.sdk.operators import EmptyOperator

        with DAG("good", schedule="@daily"):
            EmptyOperator(task_id="a")
        with DAG("bad_cron", schedule="61 * * * *"):
            EmptyOperator(task_id="a")
        with DAG("circular"):
            a, b = EmptyOperator(task_id="a"), EmptyOperator(task_id="b")
            a >> b >> a
        """,
    )
    [status] = place.parse()
    assert place.dag_ids() == ["good"]
    assert status.dag_count == 1
    bad_cron, circular = status.error.split("\n\n")
    assert bad_cron == (
        "The DAG 'bad_cron' in mixed.py cannot be used: The cron expression '61 * * * *' cannot be used: "
        "its minute field cannot be read."
    )
    assert circular.startswith("The DAG 'circular' in mixed.py cannot be used: its tasks wait for each other")


def test_a_dag_that_goes_bad_is_broken_until_it_is_good_again(place):
    path = place.write_dag("orders.py", "orders", "@daily")
    place.parse()
    place.write_dag("orders.py", "orders", "61 * * * *")
    place.parse(path)
    assert place.store.dags.get("orders").is_broken
    assert place.store.dags.get("orders").is_active
    place.write_dag("orders.py", "orders", "@daily")
    place.parse(path)
    assert place.dag_ids() == ["orders"]


def test_a_dag_id_of_another_file_is_reported_with_that_file(place):
    first = place.write_dag("a.py", "same")
    second = place.write_dag("b.py", "same")
    place.parse(first)
    place.parse(second)
    assert "'same' is defined in a.py already" in place.error("b.py")
    assert place.files()["a.py"].error is None
    assert place.store.dags.get("same").fileloc == "a.py"


def test_a_file_in_the_words_of_airflow_is_read(place):
    place.write(
        "etl.py",
        """
        from datetime import datetime
        from airflow.sdk import dag, task

        @dag(schedule="@daily", start_date=datetime(2024, 1, 1))
        def etl():
            @task
            def extract():
                return 1
            extract()

        etl()
        """,
    )
    place.parse()
    assert place.dag_ids() == ["etl"]


def test_the_import_sees_no_secrets_of_the_engine(place, monkeypatch):
    monkeypatch.setenv("STANNEL__DATABASE__SQL_ALCHEMY_CONN", "postgresql://user:secret@host/db")
    monkeypatch.setenv("STANNEL_VAR_TEAM", "blue")
    (place.folder / "spy.py").write_text(
        HEAD
        + "assert 'STANNEL__DATABASE__SQL_ALCHEMY_CONN' not in os.environ\ndag = DAG(os.environ['STANNEL_VAR_TEAM'])"
    )
    place.parse()
    assert place.dag_ids() == ["blue"]


def test_warnings_that_an_author_can_act_on_are_logged(place, caplog):
    place.write("old.py", "import warnings\nfrom stannel.sdk import DAG\nwarnings.warn('old name')\ndag = DAG('old')")
    place.parse()
    assert "old.py:3: UserWarning: old name" in [record.getMessage() for record in caplog.records]


async def test_the_fork_server_may_rest_between_imports(place):
    place.write_dag("one.py", "one")
    imports = Imports(place.folder, seconds=20, environ=os.environ)
    first = await imports.run("one.py")
    await imports.close()
    assert imports.server_pid is None
    second = await imports.run("one.py")
    assert imports.server_pid is not None
    await imports.close()
    assert [spec.dag_id for spec in first.dags] == ["one"]
    assert first.dags == second.dags


def test_signals_and_limits_of_this_process_are_left_alone(place):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGCHLD), os.getcwd()
    place.write_dag("one.py", "one")
    place.parse()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGCHLD), os.getcwd()) == before
