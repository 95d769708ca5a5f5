"""Lines of triggers stand in their tasks' logs, in order, without secrets, whatever the disk does."""

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stannel.model.masking import SecretMask
from stannel.model.states import TriggerState
from stannel.model.trigger import Trigger
from stannel.protocol.triggering import LogRecord
from stannel.triggerer.held import Held
from stannel.triggerer.logs import TriggerLogs

STAMP = "2026-03-01T00:00:00+00:00"


def trigger(number: int) -> Trigger:
    return Trigger(
        id=number,
        epoch=1,
        classpath="x.Y",
        kwargs={},
        state=TriggerState.WAITING,
        ti_pk=number,
        dag_id="d",
        run_id="r",
        task_id=f"t{number}",
        created_at=datetime(2026, 3, 1, tzinfo=UTC),
    )


def record(number: int | None, text: str, **fields: object) -> LogRecord:
    return LogRecord(number, STAMP, "info", "my.trigger", text, fields or None)


def lines(folder: Path, number: int) -> list[dict[str, object]]:
    path = folder / f"dag_id=d/run_id=r/task_id=t{number}.attempt=1.log"
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def begun() -> list[Callable[[], None]]:
    return []


@pytest.fixture
def logs(tmp_path: Path, begun: list[Callable[[], None]]) -> TriggerLogs:
    return TriggerLogs(tmp_path, begun.append)


RUNNING = {number: Held(trigger(number)) for number in (1, 2)}


async def test_each_line_goes_to_the_log_of_its_own_task(logs: TriggerLogs, tmp_path: Path) -> None:
    logs.take([record(1, "first"), record(2, "other"), record(1, "second", n=3)], RUNNING, SecretMask())
    logs.note(trigger(1), "moved")
    logs.flush()
    assert [line["event"] for line in lines(tmp_path, 1)] == ["first", "second", "moved"]
    assert lines(tmp_path, 1)[1] == {
        "timestamp": STAMP, "level": "info", "logger": "my.trigger", "event": "second", "trigger_id": 1, "n": 3,
    }  # fmt: skip
    assert [line["event"] for line in lines(tmp_path, 2)] == ["other"]


async def test_lines_are_added_to_what_the_worker_wrote(logs: TriggerLogs, tmp_path: Path) -> None:
    path = tmp_path / "dag_id=d/run_id=r/task_id=t1.attempt=1.log"
    path.parent.mkdir(parents=True)
    path.write_text('{"event":"deferred"}\n')
    logs.take([record(1, "waiting")], RUNNING, SecretMask())
    logs.flush()
    assert [line["event"] for line in lines(tmp_path, 1)] == ["deferred", "waiting"]


async def test_secrets_that_were_given_away_do_not_appear(logs: TriggerLogs, tmp_path: Path) -> None:
    mask = SecretMask()
    mask.add("hunter22")
    logs.take([record(1, "connecting with hunter22", url="x:hunter22@y", password="z")], RUNNING, mask)
    logs.flush()
    [line] = lines(tmp_path, 1)
    assert (line["event"], line["url"], line["password"]) == ("connecting with ***", "x:***@y", "***")


async def test_lines_of_nobody_go_to_the_engine_s_log(logs: TriggerLogs, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        logs.take([record(None, "the host begins"), record(99, "who am I")], RUNNING, SecretMask())
    assert "my.trigger: the host begins" in caplog.text
    assert "my.trigger: who am I" in caplog.text


async def test_a_log_that_cannot_be_written_is_nobody_s_trouble(
    logs: TriggerLogs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "dag_id=d").write_text("a file where a folder should be")
    logs.take([record(1, "lost"), record(1, "lost too")], RUNNING, SecretMask())
    logs.flush()
    assert "2 lines of triggers could not be written" in caplog.text


async def test_what_cannot_be_json_is_told_as_text(logs: TriggerLogs, tmp_path: Path) -> None:
    logs.take([record(1, "half a character", what="\ud800")], RUNNING, SecretMask())
    logs.flush()
    assert lines(tmp_path, 1)[0]["event"] == "half a character"
