"""A fork runs what modules have registered for it, each exactly once, with and without a global lock."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
sys._is_gil_enabled = lambda: {has_lock}
from stannel.supervisor.forking import fork, note_fork_hooks

note_fork_hooks()
ran = []

def register(name, module):
    def hook():
        ran.append(name)
    hook.__module__ = module
    os.register_at_fork(after_in_child=hook)

register("any", "mine")
register("lock", "threading")
pid = fork()
if pid == 0:
    os.write(1, " ".join(ran).encode())
    os._exit(0)
os.waitpid(pid, 0)
"""


@pytest.mark.parametrize(("has_lock", "ran"), [(True, "any"), (False, "any lock")])
def test_locks_are_repaired_only_where_other_threads_may_hold_them(has_lock: bool, ran: str) -> None:
    program = PROGRAM.format(has_lock=has_lock)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (ran, "")
