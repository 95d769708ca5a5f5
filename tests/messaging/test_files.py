"""A folder as a queue, with real files."""

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stannel.messaging.files import FileProducer, FileReading
from stannel.testing.producer_conformance import ACCEPTED, REJECTED, BrokerInTest, OpenStream, ProducerConformance
from stannel.triggers.shared_stream import SharedStreamProducer


class Folder(BrokerInTest):
    reading: FileReading

    def __init__(self, path: Path) -> None:
        self.path = path
        self._numbers = itertools.count(1)
        self.reading = FileReading(
            directory=str(path), content=True, max_deliveries=self.max_deliveries, retry_delay=0.02, poll_interval=0.01
        )

    def producer(self) -> SharedStreamProducer:
        return FileProducer(self.reading)

    async def publish(self, text: str, lane: str) -> None:
        number = next(self._numbers)
        self.write(f"message-{number}", text, number)

    def write(self, name: str, text: str, moment: int) -> None:
        unfinished = self.path / f"{name}.part"
        unfinished.write_text(text)
        os.utime(unfinished, ns=(moment, moment))
        unfinished.replace(self.path / name)

    def text_of(self, raw_event: Any) -> str:
        return str(raw_event.value)

    async def dead_letters(self) -> list[str]:
        return [file.read_text() for file in sorted((self.path / "dead").glob("*"))]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@asynccontextmanager
async def opened(broker: BrokerInTest) -> AsyncIterator[OpenStream]:
    stream = OpenStream(broker, patience=15)
    try:
        yield stream
    finally:
        await stream.abandon()


class TestFileProducer(ProducerConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, folder: Folder) -> None:
        self.folder = folder

    @asynccontextmanager
    async def broker(self) -> AsyncIterator[BrokerInTest]:
        yield self.folder


async def test_files_that_are_not_complete_or_not_wanted_are_not_looked_at(folder: Folder) -> None:
    for name in (".hidden.csv", "a.csv.part", "b.csv.tmp", "c.txt"):
        (folder.path / name).write_text(name)
    (folder.path / "d.csv").mkdir()
    (folder.path / "e.csv").write_text("wanted")
    folder.reading = replace(folder.reading, pattern="*.csv")
    async with opened(folder) as stream:
        assert list(await stream.take(1)) == ["wanted"]


async def test_a_file_that_was_replaced_meanwhile_is_not_removed_unread(folder: Folder) -> None:
    await folder.publish("first", "a")
    async with opened(folder) as stream:
        came = await stream.take(1)
        folder.write("message-1", "second", 2)
        await stream.settle([came["first"]], ACCEPTED)
        assert list(await stream.take(1)) == ["second"]


async def test_done_files_are_kept_where_they_are_wanted_and_never_overwrite_each_other(folder: Folder) -> None:
    done = folder.path / "archive"
    folder.reading = replace(folder.reading, done=str(done))
    async with opened(folder) as stream:
        for text in ("one", "two"):
            folder.write("same", text, len(text))
            came = await stream.take(1)
            await stream.settle([came[text]], ACCEPTED)
    assert {file.name: file.read_text() for file in done.iterdir()} == {"same": "one", "same.2": "two"}


async def test_a_file_says_what_is_known_about_it_and_is_not_read_unless_wanted(folder: Folder) -> None:
    await folder.publish("text", "a")
    folder.reading = replace(folder.reading, content=False)
    producer = FileProducer(folder.reading)
    stream: Any = producer.open_stream()
    message, position = await anext(stream)
    await stream.aclose()
    path = str(folder.path / "message-1")
    assert message.payload() == {"value": None, "path": path, "name": "message-1", "size": 4, "changed": 1}
    assert producer.get_event_identity(position) == f"{path}@1"


async def test_a_dead_letter_is_the_file_itself(folder: Folder) -> None:
    await folder.publish("bad", "a")
    async with opened(folder) as stream:
        came = await stream.take(1)
        await stream.settle([came["bad"]], REJECTED)
    assert [(file.name, file.read_text()) for file in (folder.path / "dead").iterdir()] == [("message-1", "bad")]


async def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    producer = FileProducer(FileReading(directory=str(tmp_path / "nowhere")))
    with pytest.raises(FileNotFoundError):
        await anext(producer.open_stream())  # type: ignore[arg-type]
