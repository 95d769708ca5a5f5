"""A real RabbitMQ server, from the system's packages."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from support.servers import Server, ServerUnavailable, folder, free_port

# Not /usr/sbin/rabbitmq-server, which insists on a user of its own.
_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


@contextlib.contextmanager
def running_rabbitmq() -> Iterator[Server]:
    epmd = shutil.which("epmd")
    if not _PROGRAM.exists() or epmd is None:
        raise ServerUnavailable("the package rabbitmq-server is not installed")
    with folder("rabbitmq") as directory, _port_mapper(epmd, directory) as names:
        port = free_port()
        (directory / "enabled").write_text("[].\n")
        env = {
            **os.environ,
            "RABBITMQ_NODENAME": f"stannel{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbit"),
            "ERL_EPMD_PORT": str(names.port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_MAX_PORTS": "4096",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
            "HOME": str(directory),
        }
        server = Server([_PROGRAM], port, directory, env=env)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def _port_mapper(epmd: str, directory: Path) -> Iterator[Server]:
    """Erlang's name server; one that RabbitMQ starts itself would stay behind."""
    port = free_port()
    place = directory / "epmd"
    place.mkdir()
    server = Server([epmd, "-port", port, "-address", "127.0.0.1", "-relaxed_command_check"], port, place)
    server.start()
    try:
        yield server
    finally:
        server.stop(kill=True)
