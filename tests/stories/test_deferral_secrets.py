"""What a trigger is given stays between the task and the trigger: not in the database, not in `ps`, not in logs."""

import base64
import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from stories.deferral import GATES, hosts, open_gate, wait_for_log, xcom

from stannel.store.schema import metadata
from stannel.testing import Engine

PLAIN, MARKED, NAMED = "plain-pz9c41", "marked-qk27vd", "named-hh31xw"

SECRETIVE = """
    import hashlib, os
    from airflow.sdk import DAG, BaseOperator
    from airflow.triggers.base import TriggerEvent
    from airflow.triggers.temporal import TimeDeltaTrigger
    from gates import Gate

    class Secretive(Gate):
        def __init__(self, name, plain, marked, password):
            super().__init__(name)
            self.plain, self.marked, self.password = plain, marked, password

        def serialize(self):
            return f"{__name__}.Secretive", {
                "name": self.name, "plain": self.plain, "encrypted__marked": self.marked, "password": self.password,
            }

        async def run(self):
            self.log.info("here is a %r", self)
            await self.opened()
            yield TriggerEvent(hashlib.sha256((self.plain + self.marked + self.password).encode()).hexdigest())

    class Waits(BaseOperator):
        def execute(self, context):
            with open(os.environ["STORY_SECRETS"]) as file:
                plain, marked, password = file.read().split()
            self.defer(trigger=Secretive("go", plain, marked, password), method_name="end")

        def end(self, context, event): return event

    with DAG("secretive", schedule=None):
        Waits(task_id="waits")
"""


@pytest.fixture
def secretive(engine: Engine, tmp_path: Path) -> Engine:
    """An engine without a triggerer, and a task that learns its secrets from a file."""
    (tmp_path / "secrets").write_text(f"{PLAIN} {MARKED} {NAMED}")
    engine.environ |= {"STORY_GATES": str(tmp_path / "gates"), "STORY_SECRETS": str(tmp_path / "secrets")}
    engine.add_dag_file("gates.py", GATES)
    engine.add_dag_file("secretive.py", SECRETIVE)
    engine.start("standalone", "--no-triggerer")
    return engine


def database_bytes(engine: Engine) -> bytes:
    """Every row of every table, and for SQLite every byte of the files as well."""
    found = b"".join(file.read_bytes() for file in sorted(engine.home.glob("stannel.db*")) if file.is_file())
    with engine.store.read() as tx:
        for table in metadata.sorted_tables:
            found += repr(tx.query(text(f'SELECT * FROM "{table.name}"'))).encode()
    return found


def process_bytes(engine: Engine) -> bytes:
    """What others on the machine can see of the engine's processes."""
    found = b""
    for pid in engine.processes():
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                found += Path(f"/proc/{pid}/{name}").read_bytes()
    return found


def log_bytes(engine: Engine) -> bytes:
    files = [engine.output, *sorted(engine.settings.logging.base_log_folder.rglob("*.log"))]
    return b"".join(file.read_bytes() for file in files)


def said_by(engine: Engine, *command: str) -> bytes:
    done = subprocess.run([sys.executable, "-m", "stannel.cli.main", *command], env=engine.environ, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def expected() -> str:
    return hashlib.sha256((PLAIN + MARKED + NAMED).encode()).hexdigest()


@contextlib.contextmanager
def none_of(where: str, *secrets: str) -> Iterator[list[bytes]]:
    found: list[bytes] = []
    yield found
    for secret in secrets:
        assert secret.encode() not in b"".join(found), f"{secret!r} is in {where}"


def test_arguments_of_triggers_are_seen_by_nobody_else(secretive: Engine) -> None:
    secretive.start("triggerer")
    run = secretive.trigger("secretive")
    wait_for_log(secretive, run, "waits", "here is a")
    assert hosts(secretive)
    with none_of("the database", PLAIN, MARKED, NAMED) as found:
        found.append(database_bytes(secretive))
        assert b"Secretive" in found[0]
    with none_of("the processes", PLAIN, MARKED, NAMED) as found:
        found.append(process_bytes(secretive))
        assert b"stannel.triggerer.host" in found[0]
    [waited_for] = secretive.triggers(run)
    with none_of("what the command line says", PLAIN, MARKED, NAMED) as found:
        found.append(said_by(secretive, "triggers", "list", "--output", "json"))
        found.append(said_by(secretive, "triggers", "show", str(waited_for.id)))
    open_gate(secretive, run, "go")
    assert secretive.wait_for_run(run).state == "success", secretive.task_log(run, "waits")
    assert xcom(secretive, run, "waits") == expected()
    # What its author neither marked nor named as a secret may be told to who may read the task's log.
    with none_of("the logs", MARKED, NAMED) as found:
        found.append(log_bytes(secretive))
        assert b"here is a" in found[0]
    with none_of("the database afterwards", PLAIN, MARKED, NAMED) as found:
        found.append(database_bytes(secretive))


def test_a_wait_outlives_its_key(secretive: Engine) -> None:
    run = secretive.trigger("secretive")
    secretive.wait_for_states(run, waits="deferred")
    assert b"1 triggers" in said_by(secretive, "rotate-fernet-key", "--new")
    file = secretive.home / "fernet.key"
    newest, _ = file.read_text().split(",")
    file.write_text(newest)
    secretive.start("triggerer")
    open_gate(secretive, run, "go")
    assert secretive.wait_for_run(run).state == "success", secretive.task_log(run, "waits")
    assert xcom(secretive, run, "waits") == expected()


def test_a_wait_whose_key_is_lost_fails_and_says_so_and_others_go_on(secretive: Engine) -> None:
    run = secretive.trigger("secretive", run_id="lost")
    secretive.wait_for_states(run, waits="deferred")
    (secretive.home / "fernet.key").write_text(base64.urlsafe_b64encode(os.urandom(32)).decode())
    later = secretive.trigger("secretive", run_id="later")
    secretive.wait_for_states(later, waits="deferred")
    secretive.start("triggerer")
    assert secretive.wait_for_run(run).state == "failed"
    assert "key" in (secretive.tasks(run)["waits"].note or "")
    wait_for_log(secretive, run, "waits", "key", seconds=10)
    open_gate(secretive, later, "go")
    assert secretive.wait_for_run(later).state == "success", secretive.task_log(later, "waits")
