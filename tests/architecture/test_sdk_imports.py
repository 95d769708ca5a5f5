"""A DAG file that imports the SDK loads the SDK and next to nothing else: each task process pays for it."""

import subprocess
import sys

ALLOWED = {"stannel", "msgspec"}

PROGRAM = """
import sys
before = set(sys.modules)
import {module}
print(*sorted({{name.partition(".")[0] for name in set(sys.modules) - before}}))
"""


def modules_loaded_by(module: str) -> set[str]:
    """Top-level names, other than the standard library's, that a fresh process has after importing `module`."""
    command = [sys.executable, "-I", "-c", PROGRAM.format(module=module)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return set(loaded) - sys.stdlib_module_names


def test_the_sdk_loads_only_a_short_fixed_list_of_modules():
    assert modules_loaded_by("stannel.sdk") <= ALLOWED


def test_a_foreign_module_would_be_seen():
    assert modules_loaded_by("jinja2") == {"jinja2", "markupsafe"}
