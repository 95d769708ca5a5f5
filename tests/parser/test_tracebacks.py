"""Tracebacks show the author's lines and stay short."""

import sys

import pytest

from stannel.parser.tracebacks import error_chain, files_in_traceback, own_traceback
from stannel.sdk.load import load_dags


def failure(folder, source):
    (folder / "bad.py").write_text(source)
    sys_path, hooks = sys.path[:], sys.path_hooks[:]
    try:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - any error will do
            load_dags(folder / "bad.py", folder)
    finally:
        sys.path[:], sys.path_hooks[:] = sys_path, hooks
    return caught.value


def test_frames_of_stannel_and_of_the_import_system_are_left_out(tmp_path):
    text = own_traceback(failure(tmp_path, "x = 1\nx.y\n"))
    assert f'File "{tmp_path}/bad.py", line 2, in <module>' in text
    assert "frozen" not in text
    assert "stannel/sdk" not in text


def test_a_traceback_that_is_too_long_loses_its_middle(tmp_path):
    error = failure(tmp_path, "raise ValueError('start' + 'x' * 100_000 + 'end')")
    text = own_traceback(error)
    assert len(text) <= 8000
    assert text.startswith("Traceback (most recent call last)")
    assert text.endswith("until it can be.")


def test_the_files_an_error_came_through_are_known(tmp_path):
    (tmp_path / "broken_tools.py").write_text("1 +")
    error = failure(tmp_path, "import broken_tools")
    assert {str(tmp_path / "bad.py"), str(tmp_path / "broken_tools.py")} <= files_in_traceback(error)


def test_a_circle_of_causes_comes_to_an_end():
    first, second = ValueError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert list(error_chain(first)) == [first, second]
