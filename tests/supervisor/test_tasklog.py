"""The log of an attempt is readable while it runs, keeps secrets, and never troubles anybody."""

import asyncio
import os
import resource
import signal
from pathlib import Path

import msgspec
import pytest
from supervisor.bench import make_attempt

from stannel.supervisor.tasklog import TaskLog, log_path


class NoFileLongerThan:
    """As on a full disk: a write past this length fails with an OSError, after the part that still fits."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __enter__(self) -> None:
        self._handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self._limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._size, self._limit[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limit)
        signal.signal(signal.SIGXFSZ, self._handler)


def records(path: Path) -> list[dict[str, object]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def test_the_path_names_the_attempt(tmp_path: Path):
    path = log_path(tmp_path, make_attempt(task_id="load", try_number=3))
    assert path == tmp_path / "dag_id=d/run_id=r/task_id=load.attempt=3.log"


def test_a_mapped_attempt_has_a_log_of_its_own(tmp_path: Path):
    path = log_path(tmp_path, make_attempt(task_id="load", map_index=0))
    assert path == tmp_path / "dag_id=d/run_id=r/task_id=load.map_index=0.attempt=1.log"


def test_no_id_leaves_the_folder_or_is_too_long_for_it(tmp_path: Path):
    for task_id in ("../../etc", "a/b", "x" * 250, "\u00e9" * 250):
        path = log_path(tmp_path, make_attempt(task_id=task_id))
        assert path.resolve().is_relative_to(tmp_path)
        assert len(path.relative_to(tmp_path).parts) == 3
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    one, other = (log_path(tmp_path, make_attempt(task_id="x" * 249 + end)) for end in "ab")
    assert one != other


async def test_lines_are_in_the_file_when_it_is_closed(tmp_path: Path):
    log = TaskLog(tmp_path / "new" / "folder" / "a.log")
    log.note("started", pid=7)
    log.output("task.stdout", "info", ["one", "two"])
    log.records(['{"event": "three", "level": "debug"}', ""])
    log.close()
    assert [(r["logger"], r["level"], r["event"]) for r in records(log.path)] == [
        ("stannel.supervisor", "info", "started"),
        ("task.stdout", "info", "one"),
        ("task.stdout", "info", "two"),
        ("task", "debug", "three"),
    ]
    assert records(log.path)[0]["pid"] == 7


async def test_lines_can_be_read_while_the_log_is_open(tmp_path: Path):
    log = TaskLog(tmp_path / "a.log")
    log.note("now")
    async with asyncio.timeout(5):
        while not log.path.exists() or not records(log.path):
            await asyncio.sleep(0.005)
    log.close()


async def test_an_attempt_without_lines_leaves_no_file(tmp_path: Path):
    log = TaskLog(tmp_path / "a.log")
    log.close()
    assert not log.path.exists()


async def test_secrets_are_masked_in_texts_and_fields(tmp_path: Path):
    log = TaskLog(tmp_path / "a.log", sensitive_names=["fingerprint"])
    log.mask.add("swordfish")
    log.output("task.stdout", "info", ["it is swordfish"])
    log.records(['{"event": "e", "fingerprint": "abc", "n": {"deep": ["swordfish"]}}'])
    log.close()
    text = log.path.read_text()
    assert "swordfish" not in text
    assert records(log.path)[0]["event"] == "it is ***"
    assert records(log.path)[1]["fingerprint"] == "***"


async def test_a_folder_that_cannot_be_written_is_no_trouble_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "file").write_text("not a folder")
    for name in "ab":
        log = TaskLog(tmp_path / "file" / "x" / "y" / "z" / f"{name}.log")
        log.note("lost")
        log.close()
        assert log.dropped == 1
    assert len([record for record in caplog.records if "cannot be written" in record.getMessage()]) == 1


async def test_a_full_disk_loses_whole_lines_and_says_so_when_it_can(tmp_path: Path):
    log = TaskLog(tmp_path / "a.log")
    log.note("first")
    log.flush()
    with NoFileLongerThan(log.path.stat().st_size + 10):
        log.note("second")
        log.note("third")
        log.flush()
        assert log.dropped == 2
    log.note("fourth")
    log.close()
    assert [str(record["event"]) for record in records(log.path)] == [
        "first",
        "2 earlier lines of this log could not be written and are lost",
        "fourth",
    ]
    assert log.dropped == 0


async def test_a_line_that_no_json_can_hold_is_still_a_line(tmp_path: Path):
    log = TaskLog(tmp_path / "a.log")
    log.note("odd", thing=object(), path=Path("/x"))
    log.output("task.stdout", "info", [os.fsdecode(b"\xff")])
    log.records([f'{{"event": "large", "n": {10**30}}}', '{"event": "\\ud800"}', "[" * 100_000])
    log.close()
    assert len(log.path.read_bytes().splitlines()) == 5
