"""The process that imports one DAG file: forked, given a time limit, and gone once it has told what it found."""

import contextlib
import os
import signal
import socket
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from stannel.errors import DagInvalid, ImportFailed, StannelError
from stannel.model.cron import check_cron, zone_named
from stannel.model.dag import DagSpec, encode_dag
from stannel.model.schedule import Cron, OnAssets
from stannel.parser.reads import Reads, loaded_modules
from stannel.parser.tracebacks import error_chain, files_in_traceback, own_traceback
from stannel.parser.wire import ParseOrder, ParseResult, decode_order, encode
from stannel.protocol.frames import encode_frame
from stannel.sdk.compile import compile_dag
from stannel.sdk.dags import DAG
from stannel.sdk.load import load_dags

_MOST_WARNINGS = 10


class TooSlow(BaseException):
    """The time is up. Not an `Exception`, so that an author's `except Exception` lets it pass."""


def parse(args: bytes, fds: list[int]) -> None:
    """Import the ordered file and send the result. The descriptors are the result's socket, and stdout with stderr."""
    order = decode_order(args)
    report, output = fds
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    own_pid = os.getpid()
    result = import_file(order)
    # A DAG file that forks leaves a copy of this process behind, and the copy has nothing to say.
    if os.getpid() != own_pid:
        os._exit(0)
    _flush()
    with socket.socket(fileno=report) as result_socket:
        result_socket.sendall(encode_frame(encode(result)))


def import_file(order: ParseOrder) -> ParseResult:
    """What the file holds. Whatever it does wrong becomes the result's error, as long as the process lives."""
    started = time.perf_counter()
    folder = Path(order.folder).resolve()
    reads = Reads(folder)
    reads.start()
    specs: list[DagSpec] = []
    problems: list[str] = []
    failure: BaseException | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            with _time_limit(order.seconds):
                dags = load_dags(Path(order.path), folder).dags.values()
                specs, problems = _compiled(dags, order.fileloc)
        except BaseException as error:  # noqa: BLE001 - a DAG file may raise anything, and all of it is told
            failure, problems = error, [_error_text(error, order)]
    files = {*loaded_modules(), *reads.paths(), *files_in_traceback(failure)}
    return ParseResult(
        dags=tuple(map(encode_dag, specs)),
        error="\n\n".join(problems) or None,
        dependencies=_dependencies(files, order, folder),
        seconds=time.perf_counter() - started,
        warnings=tuple(_warning_lines(caught, folder))[:_MOST_WARNINGS],
        misses_module=any(isinstance(error, ImportError) for error in error_chain(failure)),
    )


def _compiled(dags: Iterable[DAG], fileloc: str) -> tuple[list[DagSpec], list[str]]:
    """The DAGs that can be used, and what is wrong with each of the others."""
    specs, problems = [], []
    for dag in dags:
        try:
            spec = compile_dag(dag, fileloc=fileloc)
            _check_schedule(spec)
            specs.append(spec)
        except DagInvalid as error:
            problems.append(str(error))
        except StannelError as error:
            problems.append(str(DagInvalid(dag.dag_id, fileloc, str(error).rstrip("."))))
        except Exception as error:  # noqa: BLE001 - an author's own timetable or parameter may raise anything here
            reason = f"{type(error).__name__}: {error}".rstrip(".")
            problems.append(f"{DagInvalid(dag.dag_id, fileloc, reason)}\n{own_traceback(error)}")
    return specs, problems


def _check_schedule(spec: DagSpec) -> None:
    zone_named(spec.timezone)
    time = spec.schedule.time if isinstance(spec.schedule, OnAssets) else spec.schedule
    if isinstance(time, Cron):
        zone_named(time.timezone)
        check_cron(time.expression)


def _error_text(error: BaseException, order: ParseOrder) -> str:
    match error:
        case TooSlow():
            _, *lines, _ = own_traceback(error).splitlines()
            reason = f"it took longer than {order.seconds:g} s to import"
            return "\n".join([str(ImportFailed(order.fileloc, reason)), "It was here when its time was up:", *lines])
        case ImportFailed():
            reason = error.reason
        case StannelError():
            return str(error).replace(order.path, order.fileloc)
        case _:
            reason = f"{type(error).__name__}: {error}".rstrip(": .")
    # The author's own error is the cause; around it is only what the import made of it.
    shown = error.__cause__ if isinstance(error, ImportFailed) and error.__cause__ else error
    return f"{ImportFailed(order.fileloc, reason.rstrip('.'))}\n{own_traceback(shown)}"


def _dependencies(files: Iterable[str], order: ParseOrder, folder: Path) -> tuple[str, ...]:
    """The files inside the DAG folder, relative to it; the DAG file itself is not among them."""
    inside = f"{folder}{os.sep}"
    own = {order.fileloc, str(Path(order.path).resolve()).removeprefix(inside)}
    return tuple(sorted({file.removeprefix(inside) for file in files if file.startswith(inside)} - own))


def _warning_lines(caught: Iterable[warnings.WarningMessage], folder: Path) -> Iterator[str]:
    """Only what the author can do something about: warnings that point into the DAG folder."""
    for warning in caught:
        file = Path(warning.filename)
        if file.is_relative_to(folder):
            yield f"{file.relative_to(folder)}:{warning.lineno}: {warning.category.__name__}: {warning.message}"


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise `TooSlow` where the time runs out, so that the traceback shows the line; what ignores it is killed."""
    signal.signal(signal.SIGALRM, _time_is_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _time_is_up(*_: object) -> None:
    raise TooSlow


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
