"""Runs bash commands. Apart from the operators, because what it imports would make every fork of other tasks dearer."""

import logging
import shutil
import signal
import subprocess
from tempfile import TemporaryDirectory

__all__ = ["Shell", "TemporaryDirectory"]

_KILL_PATIENCE = 5.0


class Shell:
    """Runs one bash command at a time; what it prints is logged."""

    def __init__(self, log: logging.Logger, encoding: str = "utf-8") -> None:
        self._log, self._encoding = log, encoding
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, command: str, folder: str, env: dict[str, str]) -> tuple[int, str]:
        """Its exit code (128 and more: ended by a signal) and the last line it printed."""
        self._log.info("Running %s", command)
        last_line = ""
        self._process = subprocess.Popen(
            [shutil.which("bash") or "bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=env,
        )
        try:
            assert self._process.stdout is not None
            with self._process.stdout as output:
                for raw in output:
                    last_line = raw.decode(self._encoding, errors="backslashreplace").rstrip()
                    self._log.info("%s", last_line)
            code = self._process.wait()
        finally:
            # Reached while still running only when the task is stopped or timed out.
            self.stop()
        return (code if code >= 0 else 128 - code), last_line

    def stop(self) -> None:
        """End the command if it still runs."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_KILL_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
