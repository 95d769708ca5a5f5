"""A real Apache Kafka in KRaft mode, one node, from Maven Central; its jars are kept outside the checkout."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.servers import Server, ServerUnavailable, folder, free_port

VERSION = "4.1.0"
_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>test</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
_CLUSTER = "c3Rhbm5lbC10ZXN0cy0wMQ"
_JAVA = ["-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]


def cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "stannel-tests" / f"kafka-{VERSION}"


def prepared() -> Path:
    """The folder with `jars` and a formatted, empty `data`; fetched once per machine."""
    place = cache()
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "data" / "meta.properties").exists():
            _prepare(place)
    return place


def _prepare(place: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None or shutil.which("java") is None:
        raise ServerUnavailable("Maven and a Java runtime are needed to fetch and run Apache Kafka")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    with tempfile.TemporaryDirectory() as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(_POM)
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={place / 'jars'}"]
        _checked([maven, "-q", "-B", "-f", pom, *goal])
        settings = Path(work) / "server.properties"
        settings.write_text(_settings(place / "formatting", 1, 2))
        _checked(["java", *_JAVA, "-cp", f"{place / 'jars'}/*", "kafka.tools.StorageTool", "format",
                  "-t", _CLUSTER, "-c", settings])  # fmt: skip
    (place / "formatting").rename(place / "data")


def _checked(command: list[object]) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise ServerUnavailable(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _settings(data: Path, port: int, controller: int) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        "auto.create.topics.enable": "false",
        "num.network.threads": 1,
        "num.io.threads": 2,
        "log.cleaner.enable": "false",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


@contextlib.contextmanager
def running_kafka() -> Iterator[Server]:
    """A node that keeps its topics when it is restarted."""
    place = prepared()
    with folder("kafka") as directory:
        shutil.copytree(place / "data", directory / "data")
        port, controller = free_port(), free_port()
        settings = directory / "server.properties"
        settings.write_text(_settings(directory / "data", port, controller))
        java = ["java", *_JAVA, "-cp", f"{place / 'jars'}/*", "kafka.Kafka", settings]
        server = Server(java, port, directory)
        server.start()
        try:
            yield server
        finally:
            server.stop(kill=True)
