"""The program that forks: what it was given without being asked, no task inherits."""

import os
import socket
import subprocess
import sys
from pathlib import Path

PROBE = """
import os

def tell():
    print(*os.listdir("/proc/self/fd"), flush=True)
"""


def test_descriptors_it_was_not_asked_to_keep_are_closed(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    strangers = [os.dup(theirs.fileno()) for _ in range(3)]
    number = theirs.fileno()
    assert min(strangers) > number
    server = subprocess.Popen(
        [sys.executable, "-m", "stannel.supervisor", str(number), "", "probe:tell"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        pass_fds=[number, *strangers],
        stdout=subprocess.PIPE,
        text=True,
    )
    for descriptor in strangers:
        os.close(descriptor)
    theirs.close()
    ours.close()
    told, _ = server.communicate(timeout=60)
    kept = {int(name) for name in told.split()}
    assert number in kept
    assert kept.isdisjoint(strangers)
    assert server.returncode == 0
