"""A store of its own for each test, and DAG files that workers can run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from scheduler.conftest import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    # Short lives: what happens after ten leases without an answer happens within three seconds.
    stage = Stage(tmp_path, STANNEL__SCHEDULER__LEASE_SECONDS="0.3", STANNEL__SCHEDULER__SCHEDULER_HEARTBEAT_SEC="0.1")
    yield stage
    stage.store.close()
