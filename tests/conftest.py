"""What every test may ask for, and the rule that a test which did not run is not a test that passed."""

from collections.abc import Generator, Iterator
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from support import tools
from support.one_server import OneServerPerFile
from support.postgres import PostgresServer, PostgresUnavailable, running_postgres

# A busy machine is slow, not wrong: no example fails for the time it took.
settings.register_profile("stannel", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("stannel")

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> OneServerPerFile:
    return OneServerPerFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    return _refuse_skip(report) if not hasattr(report, "wasxfail") else report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _refuse_skip((yield))


def _refuse_skip(report: Report) -> Report:
    """Nobody reads the list of skipped tests of a green run, so where everything is required there is none."""
    if report.skipped and tools.everything_is_required():
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: {reason} ({tools.REQUIRE_VARIABLE}=all turns skips into failures)"
    return report


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One real PostgreSQL cluster per test process."""
    try:
        with running_postgres() as server:
            yield server
    except PostgresUnavailable as error:
        tools.missing(f"PostgreSQL ({error})")


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of an empty database that is this test's alone."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)
