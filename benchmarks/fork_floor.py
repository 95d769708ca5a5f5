"""How fast this machine can run one process per task at all: fork, one round trip, exit, reap, and nothing else."""

import gc
import importlib
import os
import select
import socket
import subprocess
import sys
import time

import harness

# What a fork server holds when it forks a task, or the floor would be that of a smaller process.
PRELOADED = "stannel.runner.main"
FORKS = 1000


def forks_per_second(concurrency: int) -> float:
    """Measured in a process of its own, which has one thread and has imported what a fork server has."""
    command = [sys.executable, __file__, str(concurrency)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=harness.clean_environment())
    return float(done.stdout)


def fork_loop(forks: int, concurrency: int) -> float:
    """Seconds for `forks` children, never more than `concurrency` at once."""
    poll = select.poll()
    living: dict[int, tuple[socket.socket, int]] = {}
    started = time.perf_counter()
    while forks or living:
        while forks and len(living) < concurrency:
            ours, pid = _fork_child()
            living[ours.fileno()] = (ours, pid)
            poll.register(ours, select.POLLIN)
            forks -= 1
        for fd, _ in poll.poll():
            ours, pid = living[fd]
            if ours.recv(64):
                ours.send(b"go on")
            else:
                os.waitpid(pid, 0)
                poll.unregister(fd)
                ours.close()
                del living[fd]
    return time.perf_counter() - started


def _fork_child() -> tuple[socket.socket, int]:
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        theirs.send(b"may I?")
        theirs.recv(64)
        os._exit(0)
    theirs.close()
    return ours, pid


if __name__ == "__main__":
    importlib.import_module(PRELOADED)
    gc.disable()
    gc.collect()
    gc.freeze()
    fork_loop(100, int(sys.argv[1]))
    print(FORKS / fork_loop(FORKS, int(sys.argv[1])))
