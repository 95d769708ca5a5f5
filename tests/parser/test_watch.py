"""Changes in a folder are heard, those that matter."""

import threading

import pytest

from stannel.parser.watch import Watch, matters


@pytest.fixture
def heard(tmp_path):
    return threading.Event()


@pytest.fixture
def watch(tmp_path, heard):
    watch = Watch(tmp_path, heard.set)
    yield watch
    watch.close()


@pytest.mark.usefixtures("watch")
def test_a_change_at_any_depth_is_heard(tmp_path, heard):
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert heard.wait(10)
    heard.clear()
    (tmp_path / "a" / "b" / "c.yaml").write_text("x")
    assert heard.wait(10)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.py", True),
        ("x/data.yaml", True),
        (".stannelignore", True),
        ("__pycache__/a.pyc", False),
        (".git/index", False),
        ("x/.venv/lib/b.py", False),
    ],
)
def test_caches_and_hidden_folders_do_not_matter(tmp_path, name, expected):
    assert matters(tmp_path, str(tmp_path / name)) is expected


def test_a_folder_that_is_replaced_is_no_longer_the_one_watched(tmp_path, heard):
    folder = tmp_path / "dags"
    folder.mkdir()
    watch = Watch(folder, heard.set)
    assert watch.is_current()
    folder.rename(tmp_path / "aside")
    folder.mkdir()
    assert not watch.is_current()
    watch.close()


def test_a_folder_that_is_not_there_cannot_be_watched(tmp_path, heard):
    with pytest.raises(OSError, match="nowhere"):
        Watch(tmp_path / "nowhere", heard.set)
