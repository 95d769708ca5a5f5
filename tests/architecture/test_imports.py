"""Imports stand at the top, and the rules of pyproject.toml cover every module they are meant for."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "stannel"

# An optional client library, and imports too slow for `stannel --help`.
MAY_IMPORT_LATE = ("messaging", "cli")

# What runs user code or sits next to it: it speaks the protocol and must not be able to reach the database.
NEVER_REACH_THE_STORE = (
    "coordinators",
    "messaging",
    "parser.child",
    "runner",
    "sdk",
    "supervisor",
    "triggerer.host",
    "triggers",
)


def hidden_imports(name: str, source: str) -> Iterator[str]:
    """Each import inside a function, as a line for people."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield f"{name}:{node.lineno}: import inside a function"


def module_exists(name: str) -> bool:
    path = PACKAGE.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_no_import_hides_in_a_function():
    found = [
        line
        for file in PACKAGE.rglob("*.py")
        if file.relative_to(PACKAGE).parts[0] not in MAY_IMPORT_LATE
        for line in hidden_imports(str(file.relative_to(ROOT)), file.read_text())
    ]
    assert found == []


def test_a_hidden_import_is_seen():
    assert list(hidden_imports("a.py", "import os\ndef f():\n    import re\n")) == ["a.py:3: import inside a function"]


def test_everything_near_user_code_is_kept_from_the_store():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [contract] = [each for each in contracts if "stannel.store" in each.get("forbidden_modules", ())]
    expected = {f"stannel.{name}" for name in NEVER_REACH_THE_STORE if module_exists(name)}
    assert expected <= set(contract["source_modules"])
    assert {"stannel.store", "stannel.execution"} <= set(contract["forbidden_modules"])
