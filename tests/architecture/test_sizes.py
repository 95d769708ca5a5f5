"""Files and functions stay short enough to be read in one go."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE_LINES, FUNCTION_LINES = 800, 80


def python_files() -> Iterator[Path]:
    for folder in ("src", "tests", "benchmarks", "examples"):
        yield from (ROOT / folder).rglob("*.py")
    yield ROOT / "dev"


def too_long(name: str, source: str) -> Iterator[str]:
    """Each thing in `source` that is longer than allowed, as a line for people."""
    lines = len(source.splitlines())
    if lines > FILE_LINES:
        yield f"{name}: {lines} lines; split it by noun"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{name}:{node.lineno}: {node.name} has {length} lines; name its steps"


def test_no_file_and_no_function_is_too_long():
    found = [line for file in python_files() for line in too_long(str(file.relative_to(ROOT)), file.read_text())]
    assert found == []


def test_a_file_and_a_function_one_line_too_long_are_seen():
    function = "def f():\n" + "    pass\n" * FUNCTION_LINES
    assert list(too_long("a.py", function)) == ["a.py:1: f has 81 lines; name its steps"]
    assert list(too_long("b.py", "pass\n" * (FILE_LINES + 1))) == ["b.py: 801 lines; split it by noun"]


def test_the_longest_allowed_file_and_function_pass():
    function = "def f():\n" + "    pass\n" * (FUNCTION_LINES - 1)
    assert list(too_long("a.py", function)) == []
    assert list(too_long("b.py", "pass\n" * FILE_LINES)) == []
