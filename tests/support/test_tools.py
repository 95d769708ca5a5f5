"""A test that cannot run says so, and where everything is required it fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import tools

CONFTEST = Path(__file__).parents[1] / "conftest.py"


def test_a_program_that_is_there_is_found():
    assert tools.require("sh").name == "sh"


def test_a_program_that_is_not_there_skips_the_test():
    with pytest.raises(pytest.skip.Exception, match="no-such-program is not installed"):
        tools.require("no-such-program")


SKIPS = """
import pytest
from support import tools
def test_asks_for_a_missing_program(): tools.require("no-such-program")
@pytest.mark.skip(reason="not today")
def test_marked(): pass
@pytest.mark.xfail(strict=True)
def test_expected_to_fail(): assert False
def test_plain(): pass
"""


def run_tests(folder: Path, source: str, require: str) -> str:
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    (folder / "test_some.py").write_text(source)
    environment = {**os.environ, tools.REQUIRE_VARIABLE: require, "PYTHONPATH": str(CONFTEST.parent)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", folder, "-c", os.devnull, folder]
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout


def test_skips_are_allowed_by_default(tmp_path):
    assert "1 passed, 2 skipped, 1 xfailed" in run_tests(tmp_path, SKIPS, require="")


def test_skips_fail_where_everything_is_required(tmp_path):
    output = run_tests(tmp_path, SKIPS, require="all")
    assert "1 failed, 1 passed, 1 xfailed, 1 error" in output
    assert "no-such-program is not installed" in output


def test_a_module_that_skips_itself_fails_where_everything_is_required(tmp_path):
    source = "import pytest\npytest.importorskip('no_such_module')\n"
    assert "1 skipped" in run_tests(tmp_path, source, require="")
    assert "1 error" in run_tests(tmp_path, source, require="all")
