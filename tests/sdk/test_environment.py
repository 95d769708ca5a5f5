"""What authors' code takes from the engine's settings when it says nothing itself."""

import json
import subprocess
import sys
from pathlib import Path

from stannel.settings import load_settings
from stannel.supervisor.environment import for_authors

SHOW = """
import json
from datetime import datetime
from stannel.sdk import DAG, BaseSensorOperator, task
from stannel.sdk.compile import compile_dag

with DAG("d", schedule="0 6 * * *", start_date=datetime(2026, 1, 1)) as dag:
    @task
    def a(): pass
    a()
spec = compile_dag(dag, fileloc="d.py")
one = spec.tasks[0]
print(json.dumps([one.retry.retries, one.retry.delay, one.execution_timeout, spec.catchup, spec.timezone,
                  BaseSensorOperator(task_id="s").timeout]))
"""


def defaults(home: Path, **settings: str) -> list[object]:
    environ = for_authors({}, load_settings(home, settings))
    shown = subprocess.run([sys.executable, "-c", SHOW], env=environ, capture_output=True, check=True, timeout=60)
    found: list[object] = json.loads(shown.stdout)
    return found


def test_without_settings_nothing_is_retried_and_dates_are_utc(tmp_path: Path) -> None:
    assert defaults(tmp_path) == [0, 300.0, None, False, "UTC", 604800.0]


def test_the_engines_settings_are_the_authors_defaults(tmp_path: Path) -> None:
    given = defaults(
        tmp_path,
        STANNEL__CORE__DEFAULT_TASK_RETRIES="2",
        STANNEL__CORE__DEFAULT_TASK_RETRY_DELAY="7",
        STANNEL__CORE__DEFAULT_TASK_EXECUTION_TIMEOUT="60",
        STANNEL__SCHEDULER__CATCHUP_BY_DEFAULT="yes",
        STANNEL__CORE__DEFAULT_TIMEZONE="Europe/Berlin",
        STANNEL__SENSORS__DEFAULT_TIMEOUT="30",
    )
    assert given == [2, 7.0, 60.0, True, "Europe/Berlin", 30.0]


def test_no_secret_of_the_engine_is_among_them(tmp_path: Path) -> None:
    environ = for_authors({"STANNEL__DATABASE__SQL_ALCHEMY_CONN": "x", "PATH": "/bin"}, load_settings(tmp_path, {}))
    assert environ["PATH"] == "/bin"
    assert not [name for name in environ if "DATABASE" in name or "FERNET" in name]
