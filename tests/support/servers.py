"""Servers for tests: started as children of the test process on free ports of loopback, gone when it is."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

START_SECONDS = 60.0


class ServerUnavailable(Exception):
    """A server cannot be started here; the text says why."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class Server:
    """A child that listens on a port. It can be killed and started again with the same command."""

    def __init__(
        self, command: Sequence[object], port: int, directory: Path, *, env: dict[str, str] | None = None,
        is_ready: Callable[[], bool] | None = None,
    ) -> None:  # fmt: skip
        # A test run that is killed must not leave a server running.
        guard = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
        self._argv = [*guard, *(str(part) for part in command)]
        self.port, self.directory, self._env = port, directory, env
        self._is_ready = is_ready or (lambda: answers(port))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = self.directory / "server.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self._env, cwd=self.directory
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise ServerUnavailable(f"{self._argv[-1]} did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self, *, kill: bool = False) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.kill() if kill else process.terminate()
            try:
                process.wait(timeout=START_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    async def restart(self) -> None:
        """Every connection ends; a new server takes over the data and the port."""
        await asyncio.to_thread(self.stop)
        # Not in a thread: a child is told to end when the thread that started it ends.
        self.start()


@contextlib.contextmanager
def folder(name: str) -> Iterator[Path]:
    """A folder of a server's own, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix=f"stannel-{name}-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
