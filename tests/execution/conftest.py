"""A running attempt in a real store, for everything it may ask."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from scheduler.conftest import Stage, task

from stannel.model.dag import GroupSpec
from stannel.model.run import Attempt


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.store.close()


@pytest.fixture
def attempt(stage: Stage) -> Attempt:
    """The running task `asks` of the DAG `d`, whose neighbours are in a group."""
    stage.dag(
        task("asks"),
        task("box.a", "asks", group_id="box"),
        task("box.b", "asks", group_id="box"),
        groups=(GroupSpec("box"),),
        tags=("sales",),
    )
    stage.trigger(run_id="now", logical_date=stage.now, conf={"size": 3})
    stage.tick()
    return stage.claim()["asks"]
