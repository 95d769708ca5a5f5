"""What a forked task process does with itself: connect its streams, run the task, report, leave.

`load` runs in a file server, once per version of a DAG file; `run` runs in every fork.
"""

import contextlib
import importlib
import io
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec import UNSET

from stannel.protocol.replies import StartupDetails
from stannel.protocol.requests import RetryTask, SucceedTask, TaskState, Terminal
from stannel.runner.channel import SocketChannel, SupervisorGone
from stannel.runner.execute import execute, execute_callback, preload
from stannel.runner.records import JsonLines, set_levels
from stannel.sdk.dags import DAG
from stannel.sdk.load import LoadedFile, load_dags

_log = logging.getLogger("stannel.runner")

_ACK_SECONDS = 30.0
_LONGEST_REASON = 500
_PLACE = msgspec.msgpack.Decoder(tuple[str, str])

# The module under `signal`, without its detour through enums: every line run in a fork copies memory.
_signal: Any = importlib.import_module("_signal")

_loaded: LoadedFile | None = None
# Made before the fork: each object that a fork has to make touches the pages of its class and of all that makes it up.
_lines = JsonLines()
_channel = SocketChannel()


def load(path: str, folder: str) -> Iterable[str]:
    """Import the DAG file for every process forked from here; returns the files that the import has read."""
    global _loaded
    get_ready()
    _loaded = load_dags(Path(path), Path(folder))
    preload(_loaded.dags)
    return map(str, _loaded.dependencies)


def get_ready() -> None:
    """Do once, before any fork, what every forked process would have to do."""
    set_levels(os.environ)
    logging.root.handlers[:] = [_lines]
    # A line shall be in the log when it was printed, not when the buffer is full.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def run(args: bytes, fds: list[int]) -> NoReturn:
    """Run one attempt. The descriptors are comm, logs, stdout and stderr, in this order."""
    comm, logs, stdout, stderr = fds
    code = 1
    try:
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)
        _lines.fd = logs
        _channel.comm = comm
        _signal.signal(_signal.SIGTERM, _channel.stop)
        _attempt(_channel, args)
        code = 0
    except SupervisorGone:
        _complain("The supervisor is gone; the attempt ends here.\n")
    except BaseException:  # noqa: BLE001 - the last stop before _exit
        _log.exception("The task process could not report a result")
    finally:
        _flush()
        os._exit(code)


def _attempt(channel: SocketChannel, args: bytes) -> None:
    startup = channel.greeting()
    try:
        result = _work(startup, _dags(args), channel)
    except SupervisorGone:
        raise
    except BaseException as error:  # noqa: BLE001 - execute turns the task's errors into results; this is one of ours
        _log.exception("The attempt failed outside the task's own code")
        result = _gave_up(startup, error)
    _flush()
    channel.last_request(result, _ACK_SECONDS)


def _work(startup: StartupDetails, dags: Mapping[str, DAG], channel: SocketChannel) -> Terminal:
    wishes = startup.ti_context.stannel
    if wishes is not UNSET and (callback := wishes.get("callback")):
        execute_callback(startup, dags, channel, callback)
        return SucceedTask(end_date=datetime.now(UTC))
    return execute(startup, dags, channel)


def _dags(args: bytes) -> Mapping[str, DAG]:
    """The DAGs of the file, imported here if the server this was forked from has not done it."""
    path, folder = _PLACE.decode(args)
    if _loaded is None:
        load(path, folder)
    assert _loaded is not None
    return _loaded.dags


def _gave_up(startup: StartupDetails, error: BaseException) -> Terminal:
    now = datetime.now(UTC)
    if startup.ti_context.should_retry:
        return RetryTask(end_date=now, retry_reason=f"{type(error).__name__}: {error}"[:_LONGEST_REASON])
    return TaskState(state="failed", end_date=now)


def _flush() -> None:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:  # noqa: BLE001, S110 - streams that task code closed or replaced must not spoil the result
        pass


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
