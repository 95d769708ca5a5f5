"""The task's own time limit: an alarm that raises in task code, but never in the middle of a request."""

import signal
import threading
from datetime import timedelta
from types import FrameType
from typing import Any

from stannel.protocol.replies import Reply
from stannel.protocol.requests import Request
from stannel.sdk.comms import Channel
from stannel.sdk.exceptions import AirflowTaskTimeout


class Deadline:
    """`with deadline:` raises `AirflowTaskTimeout` once the block has run for too long; without a limit, nothing.

    `used` is what the try took before, in other processes and waiting. If that was all there was, the alarm is not set
    and `is_used_up` says so. `channel` is the channel to use inside: half a request would leave it unusable, so the
    alarm waits for its end.
    """

    def __init__(self, channel: Channel, limit: timedelta | None, used: timedelta = timedelta()) -> None:
        self._limit = limit.total_seconds() if limit is not None else 0.0
        self._seconds = max(0.0, self._limit - used.total_seconds())
        self.is_used_up = self._limit > 0 and self._seconds == 0
        # Signals reach the main thread only; elsewhere the supervisor's own limit has to do.
        self._is_armed = self._seconds > 0 and threading.current_thread() is threading.main_thread()
        self._inner = channel
        self._is_asking = self._is_over = False
        self._before: Any = None
        self._outer_timer = (0.0, 0.0)

    @property
    def channel(self) -> Channel:
        return self if self._is_armed else self._inner

    def request(self, body: Request) -> Reply | None:
        if threading.current_thread() is not threading.main_thread():
            return self._inner.request(body)
        self._is_asking = True
        try:
            return self._inner.request(body)
        finally:
            self._is_asking = False
            if self._is_over:
                self._is_over = False
                self._raise()

    def __enter__(self) -> None:
        if self._is_armed:
            self._before = signal.signal(signal.SIGALRM, self._ring)
            self._outer_timer = signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *error: object) -> None:
        if self._is_armed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
            signal.setitimer(signal.ITIMER_REAL, *self._outer_timer)
            self._is_over = False

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_asking:
            self._is_over = True
        else:
            self._raise()

    def _raise(self) -> None:
        raise AirflowTaskTimeout(f"the task ran longer than its execution_timeout of {self._limit:g} s")
