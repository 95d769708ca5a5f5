"""A triggerer runs what deferred tasks wait for, stores what is fired at once, and loses nothing when it goes."""

import os
import signal
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from store.world import after
from triggerer.conftest import Rig

from stannel.errors import StoreUnavailable
from stannel.store.waits import expire_waits
from stannel.triggerer.loop import Triggerer


def names(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


def leases(rig: Rig) -> dict[str, dict[str, Any]]:
    return {one.owner: one.detail for one in rig.store.leases.all() if one.kind == "triggerer"}


def held_by(rig: Rig, triggerer: Triggerer) -> int:
    return len(rig.store.triggers.held(triggerer.owner))


def expire(rig: Rig) -> None:
    with rig.store.transaction() as tx:
        expire_waits(tx, rig.store.dags, after(3600))


# --- what is fired ----------------------------------------------------------------------------------------------------


def test_a_fired_event_resumes_its_task_with_the_payload(rig: Rig) -> None:
    rig.start()
    rig.defer("Now", payload={"status": "ok"})
    rig.until_states("scheduled")
    assert rig.resumed() == {"a": ("resume", {"event": {"status": "ok"}})}


def test_what_a_trigger_said_is_in_its_task_s_log_when_the_task_goes_on(one_rig: Rig) -> None:
    one_rig.start()
    one_rig.defer("Now", *names(20))
    one_rig.until_states("scheduled")
    assert all("about to fire" in one_rig.said(name) for name in names(20))


def test_every_one_of_many_triggers_resumes_its_task_once(rig: Rig) -> None:
    rig.defer("Now", *names(600), payload=1)
    rig.start()
    rig.until_states("scheduled")
    assert rig.resumed() == {name: ("resume", {"event": 1}) for name in names(600)}
    assert rig.store.triggers.all() == []


def test_a_trigger_that_raises_fails_its_own_task_only(rig: Rig) -> None:
    good, bad = rig.world.running("good", "bad")
    rig.defer_attempt(bad, "Raises")
    rig.defer_attempt(good, "Now")
    rig.start()
    rig.until(lambda: rig.world.states() == {"good": "scheduled", "bad": "failed"})
    assert "no such thing" in str(rig.log("bad"))


def test_triggers_that_wait_for_a_moment_need_no_process(rig: Rig) -> None:
    triggerer = rig.start()
    soon = (datetime.now(UTC) + timedelta(seconds=0.3)).isoformat()
    moment = {"__classname__": "datetime.datetime", "__version__": 1, "__data__": soon}
    rig.defer("stannel.triggers.temporal.DateTimeTrigger", moment=moment)
    rig.until_states("scheduled")
    assert triggerer.host_pids == []


def test_an_event_is_kept_while_the_store_is_away(one_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []
    settle = one_rig.store.triggers.settle

    def away_at_first(*args: Any, **kwargs: Any) -> list[bool]:
        tries.append(1)
        if len(tries) < 4:
            raise StoreUnavailable("sqlite:///x", "it is restarted")
        return settle(*args, **kwargs)

    monkeypatch.setattr(one_rig.store.triggers, "settle", away_at_first)
    one_rig.defer("Now", payload="kept")
    one_rig.start()
    one_rig.until_states("scheduled")
    assert one_rig.resumed() == {"a": ("resume", {"event": "kept"})}


# --- who ends a wait --------------------------------------------------------------------------------------------------


def test_a_killed_wait_runs_on_kill_once_and_is_forgotten(rig: Rig) -> None:
    rig.start()
    rig.defer("WhenFile", path=str(rig.file), marks=str(rig.marks))
    rig.until_marked("run")
    [one] = rig.store.triggers.all()
    assert rig.store.triggers.cancel(one.id, now=datetime.now(UTC))
    rig.until(lambda: rig.store.triggers.all() == [])
    assert rig.marked() == ["run", "on_kill", "cleanup"]


def test_a_wait_killed_while_nobody_runs_it_still_gets_its_on_kill(rig: Rig) -> None:
    rig.defer("WhenFile", path=str(rig.file), marks=str(rig.marks))
    [one] = rig.store.triggers.all()
    assert rig.store.triggers.cancel(one.id, now=datetime.now(UTC))
    rig.start()
    rig.until(lambda: rig.store.triggers.all() == [])
    assert rig.marked() == ["on_kill", "cleanup"]


def test_a_wait_that_took_too_long_is_stopped_without_on_kill(rig: Rig) -> None:
    rig.start()
    [attempt] = rig.world.running("a")
    assert rig.world.defer(
        attempt, "trigs.WhenFile", kwargs={"path": str(rig.file), "marks": str(rig.marks)}, timeout=60.0
    )
    rig.until_marked("run")
    expire(rig)
    rig.until_marked("cleanup")
    assert rig.marked() == ["run", "cleanup"]
    rig.until(lambda: rig.store.triggers.all() == [])


# --- leaving and taking over ------------------------------------------------------------------------------------------


def test_a_clean_stop_gives_everything_back_at_once_and_kills_nothing(rig: Rig) -> None:
    first = rig.start()
    rig.defer("WhenFile", path=str(rig.file), marks=str(rig.marks))
    rig.until_marked("run")
    rig.stop(first)
    assert rig.marked() == ["run", "cleanup"]
    assert [one.owner for one in rig.store.triggers.all()] == [None]
    assert leases(rig) == {}
    rig.start()
    rig.file.touch()
    rig.until_states("scheduled")


def test_what_was_fired_before_a_stop_is_stored(one_rig: Rig) -> None:
    one_rig.defer("WhenFile", *names(50), path=str(one_rig.file))
    triggerer = one_rig.start()
    one_rig.until(lambda: held_by(one_rig, triggerer) == 50 and triggerer.host_pids)
    one_rig.file.touch()
    one_rig.until(lambda: "scheduled" in one_rig.world.states().values())
    one_rig.stop()
    left = sum(state == "deferred" for state in one_rig.world.states().values())
    assert len(one_rig.store.triggers.all()) == left


def test_a_second_stop_does_not_wait(one_rig: Rig) -> None:
    one_rig.defer("Blocks", path=str(one_rig.file), marks=str(one_rig.marks))
    triggerer = one_rig.start()
    one_rig.until_marked("run")
    triggerer.stop()
    triggerer.stop()
    one_rig.stop(triggerer)
    assert [one.owner for one in one_rig.store.triggers.all()] == [None]


def test_a_lost_lease_lets_go_of_everything_and_begins_anew_under_another_name(rig: Rig) -> None:
    triggerer = rig.start()
    rig.defer("WhenFile", path=str(rig.file), marks=str(rig.marks))
    rig.until_marked("run")
    before = triggerer.owner
    rig.store.leases.end(before)
    rig.until(lambda: triggerer.owner != before and held_by(rig, triggerer) == 1)
    rig.until(lambda: rig.marked() == ["run", "cleanup", "run"])
    rig.file.touch()
    rig.until_states("scheduled")


def test_the_triggers_of_a_dead_triggerer_are_taken_over(rig: Rig) -> None:
    rig.defer("WhenFile", *names(5), path=str(rig.file))
    now = datetime.now(UTC)
    rig.store.leases.take("dead", "triggerer", hostname="there", pid=1, now=now, seconds=0.5)
    assert len(rig.store.triggers.claim("dead", most=10, queues=None, now=now)) == 5
    rig.file.touch()
    rig.start()
    rig.until_states("scheduled")


def test_what_others_have_by_now_is_stopped_here_and_its_event_refused(rig: Rig) -> None:
    rig.start()
    rig.defer("WhenFile", path=str(rig.file), marks=str(rig.marks))
    rig.until_marked("run")
    rig.world.plant("""UPDATE "trigger" SET owner = 'other', epoch = epoch + 1""")
    rig.file.touch()
    rig.until_marked("cleanup")
    assert rig.world.states() == {"a": "deferred"}


# --- sharing ----------------------------------------------------------------------------------------------------------


def test_no_more_than_the_capacity_is_held_and_the_rest_comes_later(rig: Rig) -> None:
    rig.defer("WhenFile", *names(12), path=str(rig.file))
    triggerer = rig.start(capacity=5)
    rig.until(lambda: held_by(rig, triggerer) == 5)
    rig.until(lambda: leases(rig)[triggerer.owner].get("running") == 5)
    assert held_by(rig, triggerer) == 5
    rig.file.touch()
    rig.until_states("scheduled")


def test_a_triggerer_that_joins_gets_an_even_share(rig: Rig) -> None:
    rig.defer("WhenFile", *names(60), path=str(rig.file))
    first = rig.start()
    rig.until(lambda: held_by(rig, first) == 60)
    second = rig.start()
    rig.until(lambda: abs(held_by(rig, first) - 30) <= 5 and abs(held_by(rig, second) - 30) <= 5)
    rig.file.touch()
    rig.until_states("scheduled")


def test_triggers_of_a_queue_run_where_it_is_served(one_rig: Rig) -> None:
    plain, special = one_rig.world.running("plain", "special")
    one_rig.defer_attempt(plain, "Now")
    one_rig.defer_attempt(special, "Now", queue="gpu")
    triggerer = one_rig.start()
    one_rig.until(lambda: one_rig.world.states()["plain"] == "scheduled")
    one_rig.until(lambda: leases(one_rig)[triggerer.owner].get("unserved") == ["gpu"])
    assert one_rig.world.states()["special"] == "deferred"
    one_rig.start(queues=["gpu", "other"])
    one_rig.until(lambda: one_rig.world.states()["special"] == "scheduled")


# --- hosts that fail --------------------------------------------------------------------------------------------------


def test_the_triggers_of_a_killed_host_go_on_in_another(rig: Rig) -> None:
    triggerer = rig.start()
    rig.defer("WhenFile", *names(10), path=str(rig.file), payload="there")
    rig.until(lambda: held_by(rig, triggerer) == 10 and triggerer.host_pids)
    [pid] = triggerer.host_pids
    os.kill(pid, signal.SIGKILL)
    rig.until(lambda: triggerer.host_pids and pid not in triggerer.host_pids)
    rig.file.touch()
    rig.until_states("scheduled")
    assert rig.resumed() == {name: ("resume", {"event": "there"}) for name in names(10)}


def test_a_host_that_stands_still_is_replaced(one_rig: Rig) -> None:
    triggerer = one_rig.start()
    one_rig.defer("WhenFile", path=str(one_rig.file), marks=str(one_rig.marks))
    one_rig.until_marked("run")
    [pid] = triggerer.host_pids
    os.kill(pid, signal.SIGSTOP)
    one_rig.until(lambda: triggerer.host_pids and pid not in triggerer.host_pids)
    one_rig.file.touch()
    one_rig.until_states("scheduled")


@pytest.mark.parametrize("kind", ["Blocks", "HoldsTheGil"])
def test_a_trigger_that_holds_up_the_others_gets_a_process_of_its_own(one_rig: Rig, kind: str) -> None:
    flag = one_rig.folder / "flag-of-the-other"
    bad, good = one_rig.world.running("bad", "good")
    one_rig.defer_attempt(bad, kind, path=str(one_rig.file), marks=str(one_rig.marks))
    triggerer = one_rig.start()
    one_rig.until_marked("run")
    one_rig.defer_attempt(good, "WhenFile", path=str(flag))
    one_rig.until(lambda: len(one_rig.marked()) == 2)
    flag.touch()
    one_rig.until(lambda: one_rig.world.states()["good"] == "scheduled")
    assert "moved to a process of its own" in one_rig.said("bad")
    first, second = (line.split()[1] for line in one_rig.mark_lines()[:2])
    assert first != second
    assert int(second) in triggerer.host_pids or kind == "HoldsTheGil"
    one_rig.file.touch()
    one_rig.until(lambda: one_rig.world.states()["bad"] == "scheduled")


def test_a_trigger_that_keeps_ending_its_process_fails_and_says_so(one_rig: Rig) -> None:
    bad, good = one_rig.world.running("bad", "good")
    one_rig.defer_attempt(bad, "Exits", marks=str(one_rig.marks))
    one_rig.defer_attempt(good, "WhenFile", path=str(one_rig.file))
    one_rig.start()
    one_rig.until(lambda: one_rig.world.states()["bad"] == "failed")
    assert one_rig.marked() == ["run", "run", "run"]
    assert "its trigger ended the process that ran it" in one_rig.said("bad")
    one_rig.file.touch()
    one_rig.until(lambda: one_rig.world.states()["good"] == "scheduled")


def test_changed_code_counts_for_new_triggers_and_not_for_those_that_run(one_rig: Rig) -> None:
    text = """
        import asyncio
        from pathlib import Path
        from stannel.triggers.base import BaseTrigger, TriggerEvent

        class Versioned(BaseTrigger):
            def __init__(self, path):
                super().__init__()
                self.path = path
            def serialize(self):
                return "versioned.Versioned", {"path": self.path}
            async def run(self):
                while not Path(self.path).exists():
                    await asyncio.sleep(0.02)
                yield TriggerEvent("VERSION")
    """
    one_rig.module("versioned", text.replace("VERSION", "old"))
    before, after_ = one_rig.world.running("before", "after")
    triggerer = one_rig.start()
    one_rig.defer_attempt(before, "versioned.Versioned", path=str(one_rig.file))
    one_rig.until(lambda: "starting" in one_rig.said("before"))
    [old_pid] = triggerer.host_pids
    one_rig.module("versioned", text.replace("VERSION", "newer"))
    one_rig.defer_attempt(after_, "versioned.Versioned", path=str(one_rig.file))
    one_rig.until(lambda: "starting" in one_rig.said("after"))
    assert old_pid in triggerer.host_pids
    one_rig.file.touch()
    one_rig.until_states("scheduled")
    assert {name: kwargs["event"] for name, (_, kwargs) in one_rig.resumed().items()} == {
        "before": "old",
        "after": "newer",
    }
    one_rig.until(lambda: old_pid not in triggerer.host_pids)
