"""Tracebacks as authors want them: their own code, without the runner around it."""

from pathlib import Path
from types import TracebackType
from typing import TypeVar

from stannel.errors import StannelError
from stannel.sdk.exceptions import AirflowException

E = TypeVar("E", bound=BaseException)
_PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"


def user_frames(error: E) -> tuple[type[E], E, TracebackType | None]:
    """The error for `exc_info`, its traceback beginning at the first frame outside Stannel.

    An error that Stannel itself raised on purpose says all in its sentence; any other is shown with all its frames.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    if trace is None and not isinstance(error, StannelError | AirflowException):
        return type(error), error, error.__traceback__
    # Whoever formats the error again (a chained one, a log handler) starts from here as well.
    error.__traceback__ = trace
    return type(error), error, trace
