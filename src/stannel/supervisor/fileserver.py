"""A fork server that has imported one DAG file, so that every task of the file starts with the DAG in memory."""

import os
import socket

import msgspec

from stannel.errors import ImportFailed
from stannel.supervisor.control import LONGEST_TEXT, DependsOn, Ready, send_notices
from stannel.supervisor.forkserver import ForkServer, brief_traceback, resolve
from stannel.supervisor.groups import threads_of_this_process

_PATHS_PER_PACKET = LONGEST_TEXT // 4096
_LONGEST_REASON = 1000


class ServeFile(msgspec.Struct, frozen=True, array_like=True):
    """What to import: `loader(path, folder)` does it, and returns the paths of the files it read.

    `rehearsal` is called before the first fork: an import fills the interpreter's caches with things no fork needs.
    """

    loader: str
    path: str
    folder: str
    rehearsal: str = ""


def serve(args: bytes, fds: list[int]) -> None:
    """Import, tell how that went, and serve if it went well."""
    control = socket.socket(fileno=fds[0])
    order = msgspec.msgpack.decode(args, type=ServeFile)
    try:
        dependencies = [os.fspath(path) for path in resolve(order.loader)(order.path, order.folder)]
    except BaseException as error:  # noqa: BLE001 - a DAG file may raise anything, SystemExit too; all of it is told
        send_notices(control, [_failure(error)])
        return
    for start in range(0, len(dependencies), _PATHS_PER_PACKET):
        send_notices(control, [DependsOn(tuple(dependencies[start : start + _PATHS_PER_PACKET]))])
    if order.rehearsal:
        resolve(order.rehearsal)()
    threads = threads_of_this_process()
    send_notices(control, [Ready(threads=threads)])
    if threads == 1:
        ForkServer(control).serve()


def _failure(error: BaseException) -> Ready:
    if isinstance(error, ImportFailed):
        return Ready(error=error.reason[:_LONGEST_REASON], traceback=brief_traceback(error.__cause__ or error))
    reason = f"{type(error).__name__}: {error}"
    return Ready(error=reason[:_LONGEST_REASON], traceback=brief_traceback(error))
