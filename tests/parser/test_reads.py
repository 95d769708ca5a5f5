"""An import's reads are noticed in a process of its own, for there is no way to stop noticing."""

import json
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import json, os, sys
from pathlib import Path
from stannel.parser.reads import Reads

os.chdir(sys.argv[1])
reads = Reads(Path(sys.argv[1]))
reads.start()
{body}
print(json.dumps(sorted(path.removeprefix(sys.argv[1] + "/") for path in reads.paths())))
"""


@pytest.fixture
def paths_read_by(tmp_path):
    (tmp_path / "dags" / "config").mkdir(parents=True)
    (tmp_path / "dags" / "config" / "a.yaml").write_text("a")
    (tmp_path / "dags" / "tools.py").write_text("x = 1")
    (tmp_path / "outside.txt").write_text("o")

    def run(body):
        program = PROGRAM.format(body=textwrap.dedent(body))
        command = [sys.executable, "-c", program, str(tmp_path / "dags")]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    return run


def test_files_that_are_opened_are_noted_however_they_are_named(paths_read_by):
    assert paths_read_by("open('config/a.yaml').close()") == ["config/a.yaml"]
    assert paths_read_by("os.close(os.open(b'config/../config/a.yaml', os.O_RDONLY))") == ["config/a.yaml"]


def test_a_file_that_was_looked_for_in_vain_is_noted(paths_read_by):
    body = """
    try:
        open('config/missing.yaml')
    except FileNotFoundError:
        pass
    """
    assert paths_read_by(body) == ["config/missing.yaml"]


def test_folders_that_are_listed_are_noted(paths_read_by):
    assert paths_read_by("os.listdir('config')") == ["config/"]
    assert paths_read_by("list(Path('config').glob('*'))") == ["config/"]


def test_what_lies_outside_is_not_noted(paths_read_by):
    assert paths_read_by("open('../outside.txt').close()\nos.listdir('..')") == []


def test_what_the_import_writes_itself_is_not_noted(paths_read_by):
    assert paths_read_by("open('cache.txt', 'w').close()\nopen('cache.txt').close()") == []


def test_the_import_system_is_not_taken_for_the_author(paths_read_by):
    assert paths_read_by("sys.path.insert(0, os.getcwd())\nimport tools") in ([], ["tools.py"])
