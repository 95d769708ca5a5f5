"""Processes that outlive whoever started them, and are found again by the folder that belongs to them.

The folder of a job holds its `lock`, which a living job holds; its `pid`, written before the command begins; its
`output`; and its `exit` code, written when the command has ended. Apart from the operator, because what is imported
here would make every fork of other tasks dearer.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

TOKEN_VARIABLE = "STANNEL_JOB_TOKEN"  # noqa: S105 - the name of a variable

# Its standard input is the lock. The command gets another, so that what it leaves behind does not hold the job open.
_WRAPPER = """
echo $$ > pid.part && mv pid.part pid || exit 125
cd "$1" || exit 125
shift
"$@" < /dev/null > "$STANNEL_JOB_FOLDER/output" 2>&1
code=$?
echo $code > "$STANNEL_JOB_FOLDER/exit.part" && mv "$STANNEL_JOB_FOLDER/exit.part" "$STANNEL_JOB_FOLDER/exit"
"""
_KILL_SECONDS = 5.0
_LOOK_SECONDS = 0.05

# Jobs whose parent this process is; it has to reap them, though it is not the one who waits for them.
_children: "list[subprocess.Popen[bytes]]" = []

RUNNING, LOST, NEVER_STARTED = "RUNNING", "LOST", "NEVER STARTED"


class Job:
    """One job of a token. Whoever has the folder can ask for it, start it and stop it."""

    def __init__(self, folder: Path, token: str) -> None:
        self.folder, self.token = folder / token, token

    def start(self, command: Sequence[str], *, env: Mapping[str, str], cwd: str) -> bool:
        """Start the command in a session of its own. False: the job was started before, nothing is done."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # Held from here on: first by us, then by the job alone. A second starter does not get it.
        with self._locked() as lock:
            if lock is None or self._read("pid") is not None:
                return False
            process = subprocess.Popen(
                ["/bin/sh", "-c", _WRAPPER, "job", cwd, *command],
                stdin=lock,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=self.folder,
                env={**env, TOKEN_VARIABLE: self.token, "STANNEL_JOB_FOLDER": str(self.folder)},
                start_new_session=True,
            )
        _children.append(process)
        return True

    def status(self) -> str:
        """RUNNING, LOST (killed, or the machine was restarted), NEVER STARTED, or EXITED with its code."""
        for child in _children:
            child.poll()
        with self._locked() as lock:
            is_held = lock is None
        code = self._read("exit")
        if code is not None:
            return f"EXITED {code}"
        if is_held or self._survivors():
            return RUNNING
        return NEVER_STARTED if self._read("pid") is None else LOST

    def wait(self, seconds: float) -> str:
        """Its status, as soon as it does not run any more, or when that much time has passed."""
        deadline = time.monotonic() + seconds
        while (status := self.status()) == RUNNING and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(_LOOK_SECONDS, left))
        return status

    def output(self, offset: int = 0) -> bytes:
        """What it has printed, from this place on."""
        try:
            with (self.folder / "output").open("rb") as file:
                file.seek(offset)
                return file.read()
        except FileNotFoundError:
            return b""

    def stop(self) -> None:
        """End the job and all it started, by force if it does not listen."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            group = self._read("pid")
            if group is None or self.status() != RUNNING:
                return
            # The lock or a process with its token is there, so the number still means this group.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(group), number)
            self.wait(_KILL_SECONDS)

    def _read(self, name: str) -> str | None:
        try:
            return (self.folder / name).read_text().strip()
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int | None]:
        """The lock. None: the job holds it, or somebody who starts it."""
        try:
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            yield -1
            return
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            yield lock
        finally:
            os.close(lock)

    def _survivors(self) -> bool:
        """Whether something of the job lives although what held its lock was killed."""
        mark = f"{TOKEN_VARIABLE}={self.token}".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if mark in Path("/proc", pid, "environ").read_bytes().split(b"\0") and not _is_zombie(pid):
                    return True
        return False


def _is_zombie(pid: str) -> bool:
    return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] == "Z"


def forget_old_jobs(folder: Path, *, seconds: float) -> None:
    """Delete what is left of jobs that ended so long ago."""
    oldest = time.time() - seconds
    with contextlib.suppress(FileNotFoundError):
        for one in folder.iterdir():
            with contextlib.suppress(OSError):
                if (one / "exit").stat().st_mtime < oldest:
                    shutil.rmtree(one)
