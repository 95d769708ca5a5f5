"""Runs attempts on this machine: one worker process, started again when it dies."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from stannel.errors import StannelError
from stannel.model.ids import new_id
from stannel.settings import Settings

# The worker starts while the store is still being imported here.
if TYPE_CHECKING:
    from stannel.store import Store

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 10.0
# A worker that lived this long was healthy; its death is not taken for a crash at start.
_HEALTHY_SECONDS = 10.0


class LocalExecutor:
    """Keeps one worker process alive until it is stopped."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store: Store | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = ""
        self._stopping = threading.Event()
        # Held while a worker is replaced or the end begins, so that no worker is born that nobody stops.
        self._replacing = threading.Lock()
        self._watch = threading.Thread(target=self._keep_alive, name="local-executor", daemon=True)
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def running(self) -> int:
        """How many attempts the worker runs, as it said at its last heartbeat."""
        if self._store is None:
            return 0
        with contextlib.suppress(StannelError):
            return sum(one.detail.get("running", 0) for one in self._store.leases.all() if one.owner == self._owner)
        return 0

    def start(self) -> None:
        """Start the worker; returns before it is ready."""
        self._spawn()

    def watch(self, store: "Store") -> None:
        """Start another worker whenever one dies, and have the store give up its attempts at once."""
        self._store = store
        self._watch.start()

    def stop(self, *, patience: float) -> None:
        """Claim nothing new, give running attempts `patience` seconds to end, then stop them."""
        process = self._last_process()
        if process is None:
            return
        self._signal(process, signal.SIGTERM)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            self.stop_now()
        if self._watch.is_alive():
            self._watch.join()

    def stop_now(self) -> None:
        """Stop running attempts, kindly for a moment, and the worker with them."""
        process = self._last_process()
        if process is None:
            return
        self._signal(process, signal.SIGQUIT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self._settings.core.killed_task_cleanup_time + 5.0)
            return
        process.kill()
        process.wait()

    def _last_process(self) -> subprocess.Popen[bytes] | None:
        """From now on no worker is started; the one that was started last."""
        with self._replacing:
            self._stopping.set()
            return self._process

    def _spawn(self) -> None:
        self._owner = f"worker-{new_id()[-12:]}"
        env = {**os.environ, "STANNEL_HOME": str(self._settings.home)}
        folder = self._settings.logging.base_log_folder
        folder.mkdir(parents=True, exist_ok=True)
        # A session of its own: Ctrl-C on the terminal is the parent's to handle. The pipe is the worker's lifeline.
        with (folder / "stannel.log").open("ab") as log_file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stannel.executors.worker", "--owner", self._owner],
                stdin=subprocess.PIPE,
                stdout=log_file,
                stderr=log_file,
                env=env,
                start_new_session=True,
            )

    def _keep_alive(self) -> None:
        pause = _FIRST_PAUSE
        while self._process is not None:
            began = time.monotonic()
            status = self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            if self._stopping.is_set():
                return
            log.error("The worker process %s ended with status %s; starting another", self._process.pid, status)
            if self._store is not None:
                with contextlib.suppress(StannelError):
                    self._store.leases.end(self._owner)
            pause = _FIRST_PAUSE if time.monotonic() - began > _HEALTHY_SECONDS else min(pause * 2, _LONGEST_PAUSE)
            while not (self._stopping.wait(pause) or self._respawn()):
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _respawn(self) -> bool:
        """Start another worker unless none is wanted any more. False: that failed, and the log says why."""
        with self._replacing:
            if self._stopping.is_set():
                return True
            try:
                self._spawn()
            except OSError as error:
                log.error("No worker process can be started; trying again: %s", error)
                return False
            self.restarts += 1
            return True

    def _signal(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
