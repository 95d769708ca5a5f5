import asyncio
import os

import pytest

from stannel.triggers.base import TriggerEvent
from stannel.triggers.file import DirectoryFileDeleteTrigger, FileDeleteTrigger, FileTrigger, first_with_file

PATIENCE = 20
QUICK = 0.005


async def events_of(trigger):
    async with asyncio.timeout(PATIENCE):
        return [event async for event in trigger.run()]


@pytest.mark.parametrize(
    ("pattern", "recursive", "found"),
    [
        ("a.txt", False, "a.txt"),
        ("*.txt", False, "a.txt"),
        ("tree", False, "tree"),
        ("empty", False, None),
        ("*.csv", False, None),
        ("**/*.csv", True, "tree/deep/b.csv"),
        ("absent", False, None),
    ],
)
def test_a_file_or_a_tree_with_a_file_is_found(tmp_path, pattern, recursive, found):
    (tmp_path / "a.txt").touch()
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "b.csv").touch()
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    assert first_with_file(str(tmp_path / pattern), recursive) == (None if found is None else str(tmp_path / found))


async def test_a_file_that_is_there_fires_once(tmp_path):
    (tmp_path / "a").touch()
    assert await events_of(FileTrigger(tmp_path / "a")) == [TriggerEvent(True)]


async def test_a_file_that_comes_later_fires_then(tmp_path):
    waiting = asyncio.create_task(events_of(FileTrigger(tmp_path / "later", poke_interval=QUICK)))
    done, _ = await asyncio.wait([waiting], timeout=10 * QUICK)
    assert not done
    (tmp_path / "later").touch()
    assert await waiting == [TriggerEvent(True)]


async def test_a_file_that_is_waited_for_to_be_deleted_is_gone_when_it_fires(tmp_path):
    path = tmp_path / "flag"
    waiting = asyncio.create_task(events_of(FileDeleteTrigger(path, poke_interval=QUICK)))
    path.touch()
    assert await waiting == [TriggerEvent(True)]
    assert not path.exists()


async def test_of_several_that_delete_one_file_one_fires(tmp_path):
    path = tmp_path / "flag"
    path.touch()
    waits = [asyncio.create_task(events_of(FileDeleteTrigger(path, poke_interval=QUICK))) for _ in range(3)]
    done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
    assert (len(done), len(pending)) == (1, 2)
    for _ in pending:
        path.touch()
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        assert len(done) == 1
    assert not path.exists()


def scanning(directory, filename="a"):
    return DirectoryFileDeleteTrigger(directory=directory, filename=filename, poke_interval=QUICK)


def test_triggers_of_one_folder_and_interval_share_one_scan(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    key = scanning(tmp_path, "a").shared_stream_key()
    assert key == ("directory-scan", str(tmp_path.resolve()), QUICK)
    assert key == scanning(link, "b").shared_stream_key()
    assert key != DirectoryFileDeleteTrigger(directory=tmp_path, filename="a").shared_stream_key()


async def test_a_scan_of_a_folder_that_is_not_there_yet_is_empty(tmp_path):
    stream = DirectoryFileDeleteTrigger.open_shared_stream(scanning(tmp_path / "new").serialize()[1])
    assert await anext(stream) == {"directory": str(tmp_path / "new"), "names": []}
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "x").touch()
    async with asyncio.timeout(PATIENCE):
        while (await anext(stream))["names"] != ["x"]:
            pass
    await stream.aclose()


async def test_a_scan_of_what_is_no_folder_fails(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        await events_of(scanning(tmp_path / "file"))


async def test_a_file_in_a_folder_is_deleted_and_fired(tmp_path):
    (tmp_path / "other").touch()
    waiting = asyncio.create_task(events_of(scanning(tmp_path)))
    (tmp_path / "a").touch()
    assert await waiting == [TriggerEvent({"filepath": str(tmp_path / "a")})]
    assert os.listdir(tmp_path) == ["other"]


async def test_a_file_that_somebody_else_took_is_waited_for_again(tmp_path):
    async def snapshots():
        yield {"directory": str(tmp_path), "names": ["a"]}
        (tmp_path / "a").touch()
        yield {"directory": str(tmp_path), "names": ["a"]}

    seen = [event async for event in scanning(tmp_path).filter_shared_stream(snapshots())]
    assert seen == [TriggerEvent({"filepath": str(tmp_path / "a")})]


def test_a_file_name_with_a_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="without a folder"):
        scanning(tmp_path, "../a")
