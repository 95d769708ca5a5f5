"""The triggerer's lease, renewed on a thread of its own: work that takes long never makes it look dead.

But work that does not go on does: the thread renews only while the loop answers it.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from stannel.errors import StannelError
from stannel.store import Store

log = logging.getLogger(__name__)

# Others take the triggers of one who was silent for so many heartbeats.
LEASE_PER_HEARTBEAT = 2.1
# A triggerer that the store has not answered for so long lets go of everything: others have it, or nobody can.
_CUT_OFF_SECONDS = 60.0
_LAST_RENEWAL_SECONDS = 2.0


class Beat(msgspec.Struct, frozen=True):
    """A renewal. `was_stalled`: before it the lease had run out, so others may have taken something."""

    at: datetime
    was_stalled: bool


class Lease(threading.Thread):
    """Keeps one owner's lease until it is stopped or lost. The callbacks are called on this thread."""

    def __init__(
        self,
        store: Store,
        owner: str,
        *,
        heartbeat: float,
        patience: float,
        hostname: str,
        clock: Callable[[], datetime],
        detail: Callable[[], dict[str, Any]],
        ping: Callable[[], None],
        on_beat: Callable[[Beat], None],
        on_lost: Callable[[str], None],
    ) -> None:
        super().__init__(name="triggerer-lease", daemon=True)
        self._store, self.owner, self._clock, self._hostname = store, owner, clock, hostname
        self._heartbeat, self._patience = heartbeat, patience
        self._seconds = LEASE_PER_HEARTBEAT * heartbeat
        self._detail, self._ping, self._on_beat, self._on_lost = detail, ping, on_beat, on_lost
        self._stopping = threading.Event()
        self._asked = self._answered = self._renewed = time.monotonic()
        self._is_silent = False

    @property
    def seconds(self) -> float:
        return self._seconds

    def take(self) -> None:
        """Announce this triggerer; before the thread is started."""
        self._store.leases.take(
            self.owner,
            "triggerer",
            hostname=self._hostname,
            pid=os.getpid(),
            now=self._clock(),
            seconds=self._seconds,
        )
        self._asked = self._answered = self._renewed = time.monotonic()

    def pong(self) -> None:
        """The loop turns."""
        self._answered = time.monotonic()

    def stop(self) -> None:
        """Renew it no more."""
        self._stopping.set()
        if self.is_alive():
            self.join(_LAST_RENEWAL_SECONDS)

    def run(self) -> None:
        # At once for the first time: the others want to know what this one can take.
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = self._heartbeat
            self._ask()
            if self._has_progress() and not self._beat():
                return

    def _ask(self) -> None:
        """Ask the loop for a sign of life; what counts is how long it owes one, not when this thread last came here."""
        if self._answered >= self._asked:
            self._asked = time.monotonic()
        self._ping()

    def _has_progress(self) -> bool:
        silent = self._answered < self._asked and time.monotonic() - self._asked > self._patience
        if silent and not self._is_silent:
            log.error("The triggerer makes no progress; its lease is not renewed, so that others take its triggers")
        self._is_silent = silent
        return not silent

    def _beat(self) -> bool:
        """Renew. False: the lease is lost."""
        moment, now = time.monotonic(), self._clock()
        try:
            is_mine = self._store.leases.renew(self.owner, now=now, seconds=self._seconds, detail=self._detail())
        except StannelError as error:
            log.error("The triggerer cannot renew its lease and tries again: %s", error)
            if moment - self._renewed < _CUT_OFF_SECONDS:
                return True
            self._on_lost(f"it was not renewed for {_CUT_OFF_SECONDS:g} s")
            return False
        except Exception:
            log.exception("The triggerer met a bug at its heartbeat and tries again")
            return True
        if not is_mine and not self._stopping.is_set():
            self._on_lost("it ran out, and others took the triggers over")
        if not is_mine:
            return False
        was_stalled = moment - self._renewed > self._seconds
        self._renewed = moment
        self._on_beat(Beat(now, was_stalled))
        return True
