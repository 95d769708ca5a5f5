"""What `stannel info` says."""

from datetime import UTC, datetime, timedelta

import pytest

from stannel import __version__
from stannel.cli.info import health
from stannel.store.leases import Lease

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def lease(*, seconds_left: float = 2, **detail: object) -> Lease:
    return Lease("w1", "worker", "host", 5, NOW, NOW, NOW + timedelta(seconds=seconds_left), dict(detail))


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (lease(), "healthy"),
        (lease(running=3), "healthy"),
        (lease(seconds_left=-1), "gone"),
        (lease(trouble="the disk is full"), "stalled: the disk is full"),
    ],
)
def test_healthy_means_a_fresh_lease_and_no_trouble(one, verdict):
    assert health(one, NOW) == verdict


def test_it_names_the_version_the_places_and_the_counts(stannel, store, home):
    about = stannel.json("info")
    assert about["version"] == __version__
    assert about["home"] == str(home)
    assert about["database"] == f"sqlite:///{home}/stannel.db"
    assert (about["dags"], about["import_errors"], about["programs"]) == (2, 0, [])


def test_it_does_not_make_a_database(stannel, home):
    assert stannel.json("info")["database_version"] is None
    assert not (home / "stannel.db").exists()


def test_it_names_the_programs_at_work(stannel, store):
    store.leases.take("worker-1", "worker", hostname="here", pid=77, now=datetime.now(UTC), seconds=30)
    [program] = stannel.json("info")["programs"]
    assert (program["kind"], program["hostname"], program["pid"], program["health"]) == (
        "worker",
        "here",
        77,
        "healthy",
    )
    assert "healthy" in stannel("info").stdout


def test_a_password_is_not_shown(stannel):
    env = {"STANNEL__DATABASE__SQL_ALCHEMY_CONN": "postgresql://me:hunter2@127.0.0.1:1/stannel"}
    assert "hunter2" not in stannel("info", env=env, code=1).output
