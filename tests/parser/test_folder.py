"""Which files of a folder may hold DAGs, and what counts as a change of them."""

import os

import pytest

from stannel.parser.folder import fingerprint, may_hold_dags, python_files, signature


def make(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_python_files_are_found_at_any_depth(tmp_path):
    make(tmp_path, "a.py", "x/b.py", "x/y/c.py", "x/data.csv", "README.md")
    assert sorted(python_files(tmp_path)) == ["a.py", "x/b.py", "x/y/c.py"]


def test_hidden_and_cached_files_are_left_out(tmp_path):
    make(tmp_path, ".git/a.py", ".hidden.py", "__pycache__/b.py", "x/.venv/c.py", "x/d.py")
    assert sorted(python_files(tmp_path)) == ["x/d.py"]


def test_ignored_files_and_folders_are_left_out(tmp_path):
    make(tmp_path, "a.py", "drafts/b.py", "x/c.py", "x/d.py")
    (tmp_path / ".airflowignore").write_text("drafts/\n")
    (tmp_path / "x" / ".stannelignore").write_text("c.py\n")
    assert sorted(python_files(tmp_path)) == ["a.py", "x/d.py"]


def test_links_are_followed_and_circles_come_to_an_end(tmp_path):
    make(tmp_path, "outside/b.py", "dags/a.py")
    (tmp_path / "dags" / "linked").symlink_to(tmp_path / "outside")
    (tmp_path / "dags" / "circle").symlink_to(tmp_path / "dags")
    (tmp_path / "dags" / "nowhere.py").symlink_to(tmp_path / "nothing")
    assert sorted(python_files(tmp_path / "dags")) == ["a.py", "linked/b.py"]


def test_a_folder_that_is_not_there_is_empty(tmp_path):
    assert python_files(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from stannel.sdk import DAG", True),
        ("from airflow import DAG", True),
        ("import AIRFLOW; Dag()", True),
        ("def helper(): return 'dag'", False),
        ("import airflow", False),
        ("", False),
    ],
)
def test_a_file_may_hold_dags_if_it_mentions_them_and_the_engine(text, expected):
    assert may_hold_dags(text.encode()) is expected


def test_a_signature_changes_with_the_file(tmp_path):
    make(tmp_path, "a.py", "b.py")
    seen = signature(tmp_path / "a.py")
    assert signature(tmp_path / "a.py") == seen
    os.utime(tmp_path / "a.py", ns=(0, 1))
    assert signature(tmp_path / "a.py") != seen
    (tmp_path / "a.py").unlink()
    assert signature(tmp_path / "a.py") is None


def test_a_fingerprint_is_about_content_and_not_about_time(tmp_path):
    make(tmp_path, "a.py", "b.py")
    seen = fingerprint(tmp_path, "a.py", ["b.py"])
    os.utime(tmp_path / "a.py", ns=(0, 1))
    assert fingerprint(tmp_path, "a.py", ["b.py"]) == seen


def test_a_fingerprint_covers_the_dependencies(tmp_path):
    make(tmp_path, "a.py", "b.py")
    seen = fingerprint(tmp_path, "a.py", ["b.py"])
    (tmp_path / "b.py").write_text("other")
    other = fingerprint(tmp_path, "a.py", ["b.py"])
    (tmp_path / "b.py").unlink()
    gone = fingerprint(tmp_path, "a.py", ["b.py"])
    assert len({seen, other, gone, fingerprint(tmp_path, "a.py", [])}) == 4


def test_the_fingerprint_of_a_listed_folder_changes_with_its_names_only(tmp_path):
    make(tmp_path, "a.py", "config/one.yaml")
    seen = fingerprint(tmp_path, "a.py", ["config/"])
    make(tmp_path, "config/__pycache__/x.pyc", "config/.one.yaml.swp")
    (tmp_path / "config" / "one.yaml").write_text("other")
    assert fingerprint(tmp_path, "a.py", ["config/"]) == seen
    make(tmp_path, "config/two.yaml")
    assert fingerprint(tmp_path, "a.py", ["config/"]) != seen
