"""A home with a real store, and the program called as a user calls it."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.sample_dags import ORDERS, PLAIN

from stannel.cli.main import cli
from stannel.model.dag import DagSpec
from stannel.model.run import Run, RunType
from stannel.settings import load_settings
from stannel.store.dags import ParsedFile
from stannel.store.opening import open_store
from stannel.store.runs import NewRun
from stannel.store.store import Store

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


class Stannel:
    """The program, called in this process."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(
        self, *args: str, code: int = 0, stdin: str | None = None, env: dict[str, str] | None = None
    ) -> Result:
        """Call it and check its exit code."""
        environ = {"STANNEL_HOME": str(self.home), "STANNEL_TRACEBACK": "", "COLUMNS": None, **(env or {})}
        result = CliRunner().invoke(cli, args, input=stdin, env=environ)
        assert result.exit_code == code, result.output
        return result

    def json(self, *args: str, code: int = 0) -> Any:
        return json.loads(self(*args, "--output", "json", code=code).stdout)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def stannel(home: Path) -> Stannel:
    return Stannel(home)


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    """The store of the home, with two DAGs in it."""
    store = open_store(load_settings(home, {}))
    for spec in (ORDERS, PLAIN):
        store.dags.save_file(ParsedFile(path=spec.fileloc, fingerprint="1", dags=(spec,), seconds=0.25), now=NOW)
    yield store
    store.close()


@pytest.fixture
def make_run(store: Store) -> Callable[..., Run]:
    """Make a run of a DAG, waiting to be started."""

    def make(spec: DagSpec = ORDERS, run_id: str = "first", **given: Any) -> Run:
        version = store.dags.get(spec.dag_id).version
        new = NewRun(run_id=run_id, run_type=RunType.MANUAL, run_after=NOW, **{"logical_date": NOW, **given})
        return store.runs.create(version, spec, new, now=NOW)

    return make
