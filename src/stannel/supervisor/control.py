"""What the supervising process and its fork servers say to each other: one packet each way, descriptors beside it."""

import array
import socket
from collections.abc import Sequence

import msgspec
from msgspec import Struct

# Well below the default send buffer of a Unix socket, so that a packet is never too long to be sent at all.
LONGEST_TEXT = 32 * 1024
MOST_FDS = 16
_BUFFER = 64 * 1024
# Put together once, and a plain number: every order would go through Python's enums, and make a fork copy their pages.
_AT_ONCE = int(socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
_ANCILLARY = socket.CMSG_SPACE(MOST_FDS * array.array("i").itemsize)


class Spawn(Struct, frozen=True, array_like=True, tag="spawn"):
    """Fork a child that calls `target(args, fds)`. `serves`: it becomes a fork server with children of its own."""

    number: int
    target: str
    args: bytes
    serves: bool = False


class Stop(Struct, frozen=True, array_like=True, tag="stop"):
    """End; every child that is left is killed."""


class Spawned(Struct, frozen=True, array_like=True, tag="spawned"):
    number: int
    pid: int


class Refused(Struct, frozen=True, array_like=True, tag="refused"):
    """No child was made."""

    number: int
    reason: str


class Exited(Struct, frozen=True, array_like=True, tag="exited"):
    """A child is gone, and so is every other process of its group. `status` is what wait(2) reports."""

    pid: int
    status: int
    max_rss_kib: int


class DependsOn(Struct, frozen=True, array_like=True, tag="depends"):
    """Files that the import of a DAG file has read: when one of them changes, the server is out of date."""

    paths: tuple[str, ...]


class Ready(Struct, frozen=True, array_like=True, tag="ready"):
    """A file server has imported its file. With an `error` or more than one thread it cannot serve, and has ended."""

    threads: int = 1
    error: str | None = None
    traceback: str | None = None


Order = Spawn | Stop
Notice = Spawned | Refused | Exited | DependsOn | Ready

_encoder = msgspec.msgpack.Encoder()
_orders = msgspec.msgpack.Decoder(Order)
_notices = msgspec.msgpack.Decoder(list[Notice])


def send_order(control: socket.socket, order: Order, fds: Sequence[int] = ()) -> None:
    """Send one order with copies of `fds`. On a non-blocking socket: all of it or `BlockingIOError`."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    control.sendmsg([_encoder.encode(order)], rights)


def receive_order(control: socket.socket) -> tuple[Order, list[int]] | None:
    """The next order and its descriptors. None: the other side is gone. `BlockingIOError`: none is waiting."""
    data, ancillary, _, _ = control.recvmsg(_BUFFER, _ANCILLARY, _AT_ONCE)
    if not data:
        return None
    fds = array.array("i")
    for _, _, rights in ancillary:
        fds.frombytes(rights)
    return _orders.decode(data), fds.tolist()


def send_notices(control: socket.socket, notices: Sequence[Notice]) -> None:
    control.send(_encoder.encode(notices))


def receive_notices(control: socket.socket) -> list[Notice] | None:
    """The next batch of notices. None: the server is gone. `BlockingIOError`: none is waiting."""
    data = control.recv(_BUFFER)
    return _notices.decode(data) if data else None
