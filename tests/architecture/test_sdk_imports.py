"""A DAG file that imports the SDK loads the SDK and next to nothing else: each task process pays for it."""

import subprocess
import sys

ALLOWED = {"stannel", "msgspec"}
# Few tasks need them, and each makes every fork of every task dearer: the first four map libraries of their own.
KEPT_OUT = {"asyncio", "hashlib", "shutil", "ssl", "difflib", "random", "subprocess", "tempfile"}

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


def test_what_few_tasks_need_is_not_in_the_process_they_are_forked_from():
    program = "import sys\nfrom stannel.runner.rehearsal import rehearse\nrehearse()\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert "stannel.runner.execute" in done.stdout.split()
    assert KEPT_OUT.isdisjoint(done.stdout.split())
