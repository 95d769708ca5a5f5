"""A DAG folder and a store of its own for every test, and a running parser for those that ask for one."""

import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stannel.parser.loop import Parser, parse_once
from stannel.settings import Settings, load_settings
from stannel.store.dags import FileStatus
from stannel.store.opening import open_store
from stannel.store.store import Store

DAG = """
from stannel.sdk import DAG
from stannel.sdk.operators import EmptyOperator

with DAG("{dag_id}", schedule={schedule!r}):
    EmptyOperator(task_id="a") >> EmptyOperator(task_id="b")
"""


def dag_source(dag_id: str, schedule: str | None = None) -> str:
    return DAG.format(dag_id=dag_id, schedule=schedule)


class Place:
    """A home with a DAG folder, and what the store says of it."""

    def __init__(self, home: Path, environ: dict[str, str]) -> None:
        self.folder = home / "dags"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.settings: Settings = load_settings(home, {"STANNEL__DATABASE__SQLITE_SYNCHRONOUS": "normal", **environ})
        self.store: Store = open_store(self.settings)

    def write(self, name: str, source: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path

    def write_dag(self, name: str, dag_id: str, schedule: str | None = None) -> Path:
        return self.write(name, dag_source(dag_id, schedule))

    def parse(self, *paths: Path) -> list[FileStatus]:
        return parse_once(self.store, self.settings, paths or None)

    def error(self, name: str) -> str:
        """The import error of a file, which must have one."""
        [found] = [file.error for file in self.store.dags.files() if file.path == name]
        assert found is not None, f"{name} has no import error"
        return found

    def files(self) -> dict[str, FileStatus]:
        return {file.path: file for file in self.store.dags.files()}

    def dag_ids(self) -> list[str]:
        """The DAGs that are in the schedule and not broken."""
        return [dag.dag_id for dag in self.store.dags.all() if not dag.is_broken]

    def wait_until(self, condition: Callable[[], bool], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"it did not happen; DAGs: {self.dag_ids()}, files: {self.files()}"
            time.sleep(0.01)


@pytest.fixture
def environ() -> dict[str, str]:
    """Settings of a test; a module overrides it."""
    return {}


@pytest.fixture
def place(tmp_path: Path, environ: dict[str, str]) -> Iterator[Place]:
    found = Place(tmp_path / "home", environ)
    yield found
    found.store.close()


@pytest.fixture
def running_parser(place: Place) -> Iterator[Parser]:
    """A parser at work in a thread, which has read everything that was in the folder."""
    parser = Parser(place.store, place.settings)
    thread = threading.Thread(target=parser.run)
    thread.start()
    try:
        assert parser.ready.wait(30)
        yield parser
    finally:
        parser.stop()
        thread.join(20)
        assert not thread.is_alive()
