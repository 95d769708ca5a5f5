"""The PostgreSQL the other tests stand on is real, and each test's database is its own."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
from support.postgres import running_postgres

TESTS = Path(__file__).parents[1]


def test_it_is_postgresql_and_speaks_utf8(postgres_url):
    with psycopg.connect(postgres_url) as connection:
        version, encoding = connection.execute("SELECT version(), current_setting('server_encoding')").fetchone()
    assert version.startswith("PostgreSQL")
    assert encoding == "UTF8"


def test_what_one_database_holds_another_does_not_see(postgres_server):
    first, second = postgres_server.create_database(), postgres_server.create_database()
    with psycopg.connect(postgres_server.url(first)) as connection:
        connection.execute("CREATE TABLE only_here (id int)")
    with psycopg.connect(postgres_server.url(second)) as connection:
        assert connection.execute("SELECT to_regclass('only_here')").fetchone() == (None,)
    postgres_server.drop_database(first)
    postgres_server.drop_database(second)


def test_a_template_gives_its_tables_to_the_copy(postgres_server):
    template = postgres_server.create_database()
    with psycopg.connect(postgres_server.url(template)) as connection:
        connection.execute("CREATE TABLE inherited (id int)")
    copy = postgres_server.create_database(template=template)
    with psycopg.connect(postgres_server.url(copy)) as connection:
        assert connection.execute("SELECT to_regclass('inherited') IS NOT NULL").fetchone() == (True,)
    postgres_server.drop_database(copy)
    postgres_server.drop_database(template)


def test_a_restarted_server_has_what_it_had():
    with running_postgres() as server:
        with psycopg.connect(server.url()) as connection:
            connection.execute("CREATE TABLE still_here (id int)")
        before = server.pid
        server.restart()
        assert server.pid != before
        with psycopg.connect(server.url()) as connection:
            assert connection.execute("SELECT to_regclass('still_here') IS NOT NULL").fetchone() == (True,)


def test_a_killed_owner_takes_its_server_along():
    program = "import sys; from support.postgres import running_postgres\n"
    program += "with running_postgres() as server: print(server.pid, server.directory, flush=True); sys.stdin.read()"
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, **pipes) as owner:
        pid, directory = owner.stdout.readline().split()
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while _is_running(int(pid)):
        assert time.monotonic() < deadline, f"PostgreSQL {pid} outlived its owner"
        time.sleep(0.05)
    shutil.rmtree(directory)


def _is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
