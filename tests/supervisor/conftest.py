"""Fork servers and a bench to run attempts on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from supervisor.bench import Bench, fork_settings

from stannel.supervisor.files import ForkLaunch


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_launch(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ForkLaunch]:
    """One base server for all tests of a module that leave it alone."""
    launch = ForkLaunch(fork_settings(tmp_path_factory.mktemp("dags")))
    yield launch
    await launch.close()


@pytest_asyncio.fixture(loop_scope="module")
async def bench(shared_launch: ForkLaunch, tmp_path: Path) -> Bench:
    return Bench(shared_launch, tmp_path)
