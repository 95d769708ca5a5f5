"""A look at the folder finds what must be imported again, and only that."""

import os
import time

import pytest

from stannel.parser.picture import Changes, Picture

DAG = "import stannel  # dag"


@pytest.fixture
def picture(tmp_path):
    return Picture(tmp_path, ())


def import_all(picture, dependencies=(), **kwargs):
    found = picture.look()
    for path in found.stale:
        picture.imported(picture.begin(path), dependencies, **kwargs)
    return found.stale


def test_a_stale_file_stays_stale_until_it_was_imported(tmp_path, picture):
    (tmp_path / "a.py").write_text(DAG)
    assert picture.look() == Changes(stale=["a.py"], gone=[])
    assert import_all(picture) == ["a.py"]
    assert picture.look() == Changes(stale=[], gone=[])


def test_the_file_that_changed_last_comes_first(tmp_path, picture):
    for number, name in enumerate(["b.py", "c.py", "a.py"]):
        (tmp_path / name).write_text(DAG)
        os.utime(tmp_path / name, (number, number))
    assert picture.look().stale == ["a.py", "c.py", "b.py"]


def test_a_file_without_dags_is_never_imported_until_it_mentions_one(tmp_path, picture):
    (tmp_path / "a.py").write_text("x = 1")
    assert import_all(picture) == []
    (tmp_path / "a.py").write_text(DAG)
    assert import_all(picture) == ["a.py"]


def test_a_file_that_no_longer_mentions_dags_is_gone(tmp_path, picture):
    (tmp_path / "a.py").write_text(DAG)
    import_all(picture)
    (tmp_path / "a.py").write_text("x = 1")
    assert picture.look() == Changes(stale=[], gone=["a.py"])
    picture.removed("a.py")
    assert picture.look() == Changes(stale=[], gone=[])


def test_a_file_that_the_store_knows_and_the_folder_has_not_is_gone(tmp_path):
    picture = Picture(tmp_path, ["old.py"])
    assert picture.look() == Changes(stale=[], gone=["old.py"])


def test_a_touched_file_is_not_stale_and_a_changed_one_is(tmp_path, picture):
    (tmp_path / "a.py").write_text(DAG)
    import_all(picture)
    os.utime(tmp_path / "a.py", (1, 1))
    assert picture.look().stale == []
    (tmp_path / "a.py").write_text(DAG + "!")
    assert picture.look().stale == ["a.py"]


def test_a_dependency_makes_stale_whatever_depends_on_it(tmp_path, picture):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(DAG)
    (tmp_path / "data.yaml").write_text("1")
    os.utime(tmp_path / "data.yaml", (1, 1))
    picture.look()
    picture.imported(picture.begin("a.py"), ["data.yaml"])
    picture.imported(picture.begin("b.py"), [])
    (tmp_path / "data.yaml").write_text("2")
    assert picture.look().stale == ["a.py"]


def test_a_file_that_changes_while_it_is_imported_is_stale_again(tmp_path, picture):
    (tmp_path / "a.py").write_text(DAG)
    picture.look()
    begun = picture.begin("a.py")
    (tmp_path / "a.py").write_text(DAG + "!")
    picture.imported(begun, [])
    assert picture.look().stale == ["a.py"]


def test_a_dependency_that_changes_during_the_import_is_read_again_once(tmp_path, picture):
    (tmp_path / "a.py").write_text(DAG)
    (tmp_path / "data.yaml").write_text("1")
    picture.look()
    for stale in (["a.py"], []):
        begun = picture.begin("a.py")
        later = time.time() + 1
        os.utime(tmp_path / "data.yaml", (later, later))
        picture.imported(begun, ["data.yaml"])
        assert picture.look().stale == stale


def test_a_missing_module_makes_the_file_wait_for_any_new_file(tmp_path, picture):
    (tmp_path / "a.py").write_text(DAG)
    import_all(picture, misses_module=True)
    assert picture.look().stale == []
    (tmp_path / "names.py").write_text("NAME = 1")
    assert picture.look().stale == ["a.py"]


def test_a_file_that_is_deleted_while_it_is_imported_is_gone_afterwards(tmp_path, picture):
    (tmp_path / "a.py").write_text(DAG)
    picture.look()
    begun = picture.begin("a.py")
    (tmp_path / "a.py").unlink()
    picture.look()
    picture.imported(begun, [])
    assert picture.look() == Changes(stale=[], gone=["a.py"])


def test_an_import_that_came_to_nothing_leaves_the_file_stale(tmp_path, picture):
    (tmp_path / "a.py").write_text(DAG)
    import_all(picture)
    picture.doubt("a.py")
    assert picture.look().stale == ["a.py"]
