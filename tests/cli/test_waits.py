"""What people are told of a wait: what for, until when, and why nothing comes of it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stannel.cli.waits import Triggerers, explain
from stannel.model.states import TriggerState
from stannel.store.leases import Lease
from stannel.store.trigger_records import TriggerRecord

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
START = "start one with: stannel triggerer"
UNSERVED = f"no triggerer serves queue 'gpu'; {START} --queues gpu"


def trigger(**fields: Any) -> TriggerRecord:
    given = {
        "id": 7, "state": TriggerState.WAITING, "classpath": "my.file.Watch", "dag_id": "d", "run_id": "r",
        "task_id": "t", "map_index": -1, "try_number": 1, "queue": None, "priority": 1, "created_at": NOW,
        "deadline_at": None, "due_at": None, "owner": None, "claimed_at": None,
    }  # fmt: skip
    return TriggerRecord(**{**given, **fields})


def triggerer(owner: str = "t1", *, seconds_left: float = 2, **detail: Any) -> Lease:
    return Lease(owner, "triggerer", "host", 5, NOW, NOW, NOW + timedelta(seconds=seconds_left), detail)


def plain(owner: str = "t1", *, seconds_left: float = 2, **detail: Any) -> Lease:
    return triggerer(owner, seconds_left=seconds_left, **{"capacity": 10, "running": 1, "queues": None, **detail})


def waits_for(one: TriggerRecord, *leases: Lease) -> str:
    return Triggerers(leases, NOW).waits_for(one)


IN_AN_HOUR = NOW + timedelta(hours=1)
MOMENT = "the moment 2026-11-15 13:00:00Z"


@pytest.mark.parametrize(
    ("one", "leases", "text"),
    [
        pytest.param(trigger(owner="t1"), [plain()], "its event", id="somebody runs it"),
        pytest.param(
            trigger(owner="t1", deadline_at=IN_AN_HOUR),
            [plain()],
            "its event, until 2026-11-15 13:00:00Z at the latest",
            id="a deadline",
        ),
        pytest.param(trigger(), [plain()], "its event; a triggerer takes it next", id="not yet claimed"),
        pytest.param(trigger(), [triggerer()], "its event; a triggerer takes it next", id="one that has just begun"),
        pytest.param(trigger(), [], f"its event; no triggerer is running; {START}", id="nobody at work"),
        pytest.param(
            trigger(), [plain(seconds_left=-1)], f"its event; no triggerer is running; {START}", id="a dead one"
        ),
        pytest.param(
            trigger(owner="t1"),
            [plain(seconds_left=-1)],
            f"its event; its triggerer t1 is gone; no triggerer is running; {START}",
            id="its own is dead and there is no other",
        ),
        pytest.param(
            trigger(owner="t1"), [plain("t2")], "its event; a triggerer takes it next", id="another takes it over"
        ),
        pytest.param(
            trigger(queue="gpu"),
            [plain(), plain("t2", queues=["cpu"])],
            f"its event; {UNSERVED}",
            id="a queue nobody serves",
        ),
        pytest.param(
            trigger(queue="gpu"),
            [plain(queues=["cpu", "gpu"])],
            "its event; a triggerer takes it next",
            id="a queue somebody serves",
        ),
        pytest.param(
            trigger(),
            [plain(queues=["cpu"])],
            "its event; every triggerer serves only its queues; start one for the rest with: stannel triggerer",
            id="no queue, but only triggerers with queues",
        ),
        pytest.param(
            trigger(),
            [plain(running=10), plain("t2", running=10)],
            "its event; its triggerers are full: they run 20 of 20",
            id="all full",
        ),
        pytest.param(
            trigger(),
            [plain(capacity=0, trouble="no memory")],
            "its event; no triggerer can go on: no memory",
            id="all troubled",
        ),
        pytest.param(
            trigger(owner="t1"),
            [plain(trouble="the disk is full")],
            "its event; its triggerer cannot go on: the disk is full",
            id="its own is troubled",
        ),
        pytest.param(trigger(due_at=IN_AN_HOUR), [plain(queues=["x"])], MOMENT, id="a moment"),
        pytest.param(
            trigger(due_at=IN_AN_HOUR), [], f"{MOMENT}; no triggerer is running; {START}", id="a moment, but nobody"
        ),
        pytest.param(
            trigger(state=TriggerState.KILLED, owner="t1"), [plain()], "killed: its on_kill runs next", id="killed"
        ),
        pytest.param(
            trigger(state=TriggerState.KILLED), [], f"killed: no triggerer is running; {START}", id="killed, nobody"
        ),
        pytest.param(
            trigger(state=TriggerState.KILLING, owner="t1"), [plain()], "killed: its on_kill runs", id="killing"
        ),
        pytest.param(
            trigger(state=TriggerState.ENDED, owner="t1"),
            [plain()],
            "its time was up; whoever runs it stops it",
            id="ended",
        ),
    ],
)
def test_a_trigger_says_what_it_waits_for_and_what_is_missing(one, leases, text):
    assert waits_for(one, *leases) == text


def test_a_worker_is_no_triggerer():
    worker = Lease("w", "worker", "host", 5, NOW, NOW, IN_AN_HOUR, {})
    assert waits_for(trigger(), worker).endswith(f"no triggerer is running; {START}")


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (trigger(owner="t1"), "it waits for Watch (trigger 7) since 2026-11-15 12:00:00Z"),
        (
            trigger(owner="t1", deadline_at=IN_AN_HOUR),
            "it waits for Watch (trigger 7) since 2026-11-15 12:00:00Z, until 2026-11-15 13:00:00Z at the latest",
        ),
        (
            trigger(due_at=IN_AN_HOUR),
            "it waits for Watch (trigger 7) since 2026-11-15 12:00:00Z, due at 2026-11-15 13:00:00Z",
        ),
        (
            trigger(queue="gpu"),
            f"it waits for Watch (trigger 7) since 2026-11-15 12:00:00Z; {UNSERVED}",
        ),
    ],
)
def test_a_deferred_task_names_its_trigger_since_when_and_until_when(one, text):
    assert explain(one, Triggerers([plain()], NOW)) == text
