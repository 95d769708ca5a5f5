"""Hosts come when there is something to run, and go when they are idle, too large, blocked or not to be trusted."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from store.world import World
from triggerer.conftest import Rig

from stannel.store import Store
from stannel.triggerer.hosts import changed_file

MORE = """
import asyncio, os
from pathlib import Path
from stannel.triggers.base import TriggerEvent
from trigs import Base, WhenFile

class GrowsOnce(WhenFile):
    async def run(self):
        is_first = not os.path.exists(self.kwargs["marks"])
        self.mark(f"run {os.getpid()}")
        if is_first:
            self.ballast = b"x" * (400 << 20)
        while not Path(self.kwargs["path"]).exists():
            await asyncio.sleep(0.02)
        yield TriggerEvent("slim")

class GrowsAlways(WhenFile):
    async def run(self):
        self.ballast = b"x" * (400 << 20)
        yield TriggerEvent(await asyncio.sleep(3600))

class IgnoresCancellation(WhenFile):
    async def run(self):
        self.mark(f"run {os.getpid()}")
        while not Path(self.kwargs["path"]).exists():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                self.mark("no")
        yield TriggerEvent("late")

class Asks(Base):
    async def run(self):
        from stannel.protocol.requests import GetVariable
        from stannel.triggers.asking import ask
        found = await ask(GetVariable("db_password"))
        self.log.info("the password is %s", found.value)
        yield TriggerEvent(len(found.value))

class LogsALot(Base):
    async def run(self):
        for number in range(2000):
            self.log.info("line %d", number)
        yield TriggerEvent("done")
"""


def rig_with(store: Store, folder: Path, **settings: str) -> Rig:
    rig = Rig(World(store), folder, **{f"STANNEL__TRIGGERER__{name}": value for name, value in settings.items()})
    rig.module("more", MORE)
    return rig


@pytest.fixture
def make_rig(sqlite_store: Store, tmp_path: Path) -> Iterator[Any]:
    made: list[Rig] = []

    def make(**settings: str) -> Rig:
        made.append(rig_with(sqlite_store, tmp_path, **settings))
        return made[-1]

    yield make
    for rig in made:
        rig.stop()
        assert rig.world.forbidden_moves() == []


def test_there_is_no_process_until_there_is_a_trigger_and_none_when_it_was_idle_for_long(make_rig: Any) -> None:
    rig = make_rig(HOST_IDLE_SECONDS="0.3")
    triggerer = rig.start()
    rig.until(rig.store.leases.all)
    assert triggerer.host_pids == []
    rig.defer("Now")
    rig.until_states("scheduled")
    rig.until(lambda: triggerer.host_pids == [])


def test_a_host_that_grew_too_large_is_replaced_and_its_triggers_go_on(make_rig: Any) -> None:
    rig = make_rig(HOST_MEMORY_LIMIT_MB="300")
    rig.defer("more.GrowsOnce", path=str(rig.file), marks=str(rig.marks))
    rig.start()
    rig.until(lambda: rig.marked().count("run") == 2)
    rig.file.touch()
    rig.until_states("scheduled")
    first, second = (line.split()[1] for line in rig.mark_lines() if line.startswith("run"))
    assert first != second


def test_a_trigger_that_always_grows_too_large_is_found_and_fails_and_the_others_go_on(make_rig: Any) -> None:
    rig = make_rig(HOST_MEMORY_LIMIT_MB="300")
    bad, *good = rig.world.running("bad", *(f"good{number}" for number in range(5)))
    rig.defer_attempt(bad, "more.GrowsAlways")
    for attempt in good:
        rig.defer_attempt(attempt, "WhenFile", path=str(rig.file))
    rig.start()
    rig.until(lambda: rig.world.states()["bad"] == "failed")
    assert "alone in a process it used" in rig.said("bad")
    rig.file.touch()
    rig.until(lambda: sorted(rig.world.states().values()) == ["failed", *["scheduled"] * 5])


def test_when_no_process_of_its_own_can_be_given_a_blocking_trigger_fails_and_the_others_go_on(make_rig: Any) -> None:
    rig = make_rig(QUARANTINE_HOSTS="0")
    bad, good = rig.world.running("bad", "good")
    rig.defer_attempt(good, "WhenFile", path=str(rig.folder / "other-flag"))
    rig.defer_attempt(bad, "Blocks", path=str(rig.file), marks=str(rig.marks))
    rig.start()
    rig.until(lambda: rig.world.states()["bad"] == "failed")
    assert "no process of its own could be given to it" in rig.said("bad")
    assert "trigs.py:" in rig.said("bad")
    (rig.folder / "other-flag").touch()
    rig.until(lambda: rig.world.states()["good"] == "scheduled")


def test_a_trigger_that_ignores_being_stopped_stays_behind_alone_and_then_goes_with_its_process(make_rig: Any) -> None:
    rig = make_rig(CANCEL_GRACE="0.3")
    stubborn, kind = rig.world.running("stubborn", "kind")
    triggerer = rig.start()
    rig.defer_attempt(stubborn, "more.IgnoresCancellation", path=str(rig.file), marks=str(rig.marks))
    rig.until_marked("run")
    rig.defer_attempt(kind, "WhenFile", path=str(rig.folder / "other-flag"))
    rig.until(lambda: "starting" in rig.said("kind"))
    [pid] = triggerer.host_pids
    [one] = [one for one in rig.store.triggers.all() if one.task_id == "stubborn"]
    assert rig.store.triggers.cancel(one.id, now=rig.world.instance("kind").start_date)
    rig.until_marked("no", "on_kill")
    rig.until(lambda: "ignores cancellation" in rig.said("stubborn"))
    assert triggerer.host_pids == [pid]
    (rig.folder / "other-flag").touch()
    rig.until(lambda: rig.world.states()["kind"] == "scheduled")
    rig.until(lambda: pid not in triggerer.host_pids)
    rig.until(lambda: rig.store.triggers.all() == [])


def test_when_no_process_can_be_started_the_lease_says_so_and_it_is_tried_again(
    make_rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    rig.defer("Now")
    rig.start()

    def trouble() -> bool:
        return any("can be started" in one.detail.get("trouble", "") for one in rig.store.leases.all())

    rig.until(trouble)
    monkeypatch.undo()
    rig.until_states("scheduled")
    rig.until(lambda: not trouble())


def test_a_trigger_asks_the_engine_and_its_secrets_are_masked_in_the_log(make_rig: Any) -> None:
    rig = make_rig()
    rig.store.variables.save("db_password", "hunter22", None)
    rig.defer("more.Asks")
    rig.start()
    rig.until_states("scheduled")
    assert rig.resumed() == {"a": ("resume", {"event": 8})}
    assert "the password is ***" in rig.said()


def test_arguments_that_no_message_can_hold_fail_only_their_task(make_rig: Any) -> None:
    rig = make_rig()
    bad, good = rig.world.running("bad", "good")
    rig.defer_attempt(bad, "Now", payload=2**70)
    rig.defer_attempt(good, "Now")
    rig.start()
    rig.until(lambda: rig.world.states() == {"bad": "failed", "good": "scheduled"})
    assert "its arguments cannot be sent" in (rig.world.instance("bad").note or "")


def test_many_lines_arrive_whole_and_in_order(make_rig: Any) -> None:
    rig = make_rig()
    rig.defer("more.LogsALot")
    rig.start()
    rig.until_states("scheduled")
    said = [line["event"] for line in rig.log() if line["event"].startswith("line ")]
    assert said == [f"line {number}" for number in range(2000)]


def test_a_file_has_changed_when_it_is_not_what_was_imported(tmp_path: Path) -> None:
    path = tmp_path / "trig.py"
    path.write_text("1")
    found = os.stat(path)
    known = {str(path): f"{found.st_mtime_ns}-{found.st_size}"}
    assert changed_file(known) is None
    path.write_text("22")
    assert changed_file(known) == str(path)
    path.unlink()
    assert changed_file(known) == str(path)
    assert changed_file({}) is None
