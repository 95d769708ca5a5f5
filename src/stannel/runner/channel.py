"""The task's end of the wire over a blocking descriptor: one request at a time, from any thread."""

import os
import select
import threading
from types import FrameType

from stannel.protocol.frames import DEFAULT_FRAME_LIMIT
from stannel.protocol.replies import Reply, StartupDetails
from stannel.protocol.requests import Request
from stannel.protocol.session import RuntimeSession
from stannel.sdk.exceptions import AirflowTaskTerminated

_CHUNK = 64 * 1024
# What the supervisor accepts: a larger message is refused here, where the task can be told which it was.
FRAME_LIMIT = int(os.environ.get("STANNEL__WORKERS__FRAME_LIMIT", DEFAULT_FRAME_LIMIT))


class SupervisorGone(BaseException):
    """Nobody listens any more. Not an `Exception`: task code that goes on would work for nobody."""


class SocketChannel:
    """Asks the supervisor. A signal that ends the task waits until the request under way is answered."""

    def __init__(self, comm: int = -1) -> None:
        self.comm = comm
        self._session = RuntimeSession(frame_limit=FRAME_LIMIT)
        self._lock = threading.Lock()
        self._main = threading.get_ident()
        self._is_main_inside = False
        self._is_told_to_stop = False
        self._patience: float | None = None

    def greeting(self) -> StartupDetails:
        """The supervisor's first words."""
        while True:
            startup = self._session.read_greeting(self._received())
            if startup is not None:
                return startup

    def request(self, body: Request) -> Reply | None:
        """The answer, an `ErrorResponse` included; None is the plain acknowledgement."""
        if threading.get_ident() != self._main:
            return self._exchange(body)
        self._is_main_inside = True
        try:
            return self._exchange(body)
        finally:
            self._is_main_inside = False
            if self._is_told_to_stop:
                self._is_told_to_stop = False
                raise AirflowTaskTerminated("the task was told to stop")

    def last_request(self, body: Request, patience: float) -> None:
        """Report the result; its acknowledgement is waited for, but not for ever, and no signal interrupts any more."""
        self._is_main_inside = True
        self._patience = patience
        self._exchange(body)

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        """The handler of SIGTERM: raises in the main thread, but not between the two halves of a frame."""
        if self._is_main_inside:
            self._is_told_to_stop = True
        else:
            raise AirflowTaskTerminated("the task was told to stop")

    def _exchange(self, body: Request) -> Reply | None:
        with self._lock:
            request_id, frame = self._session.request(body)
            self._send(frame)
            while True:
                for answer in self._session.feed(self._received()):
                    if answer.id == request_id:
                        return answer.error or answer.body

    def _send(self, frame: bytes) -> None:
        try:
            sent = os.write(self.comm, frame)
            while sent < len(frame):
                sent += os.write(self.comm, memoryview(frame)[sent:])
        except (BrokenPipeError, ConnectionResetError) as error:
            raise SupervisorGone from error

    def _received(self) -> bytes:
        if self._patience is not None and not select.select([self.comm], [], [], self._patience)[0]:
            raise SupervisorGone
        try:
            data = os.read(self.comm, _CHUNK)
        except ConnectionResetError as error:
            raise SupervisorGone from error
        if not data:
            raise SupervisorGone
        return data
