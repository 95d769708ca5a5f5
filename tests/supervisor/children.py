"""Task processes of every kind, good and hostile. Which one an attempt gets is the stem of its DAG file's name."""

import os
import signal
import socket
import struct
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from stannel.protocol.replies import StartupDetails
from stannel.protocol.requests import (
    GetConnection,
    GetVariable,
    MaskSecret,
    RetryTask,
    SetRenderedMapIndex,
    SkipDownstreamTasks,
    SucceedTask,
    TaskState,
)
from stannel.protocol.session import Answered, RuntimeSession

LONG = 60.0


def load(path: str, folder: str) -> list[str]:
    """Stands in for the import of a DAG file; the file's own text says what happens."""
    file = Path(path)
    if file.exists():
        exec(compile(file.read_text(), path, "exec"), {"__name__": "dag_file"})
    return [path, str(file.with_name("imported_by_" + file.name))]


def act(args: bytes, fds: list[int]) -> None:
    path, _ = msgspec.msgpack.decode(args, type=tuple[str, str])
    globals()[Path(path).stem](Wire(fds))


class Wire:
    def __init__(self, fds: list[int]) -> None:
        self.comm = socket.socket(fileno=fds[0])
        self.logs, self.stdout, self.stderr = fds[1:]
        self.session = RuntimeSession()

    def greeting(self) -> StartupDetails:
        while (startup := self.session.read_greeting(self.comm.recv(65536))) is None:
            pass
        return startup

    def ask(self, body) -> Answered:
        _, frame = self.session.request(body)
        self.comm.sendall(frame)
        return self.answer()

    def answer(self) -> Answered:
        while True:
            data = self.comm.recv(65536)
            if not data:
                os._exit(9)
            for answered in self.session.feed(data):
                return answered

    def say(self, text: str) -> None:
        os.write(self.stdout, text.encode() + b"\n")

    def succeed(self) -> Answered:
        return self.ask(SucceedTask(end_date=now()))


def now() -> datetime:
    return datetime.now(UTC)


def frame(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def forever() -> None:
    while True:
        time.sleep(LONG)


# -- good ones


def succeeds(wire: Wire) -> None:
    startup = wire.greeting()
    wire.say(f"hello from {startup.ti.task_id}")
    os.write(wire.stderr, b"and an error without a line break")
    os.write(wire.logs, b'{"event":"a record","level":"warn","logger":"mine","answer":42}\n')
    wire.succeed()


def fails(wire: Wire) -> None:
    wire.greeting()
    wire.ask(TaskState(state="failed", end_date=now()))


def skips(wire: Wire) -> None:
    wire.greeting()
    wire.ask(TaskState(state="skipped", end_date=now()))


def wants_a_retry(wire: Wire) -> None:
    wire.greeting()
    wire.ask(RetryTask(end_date=now(), retry_delay_seconds=7.0, retry_reason="not today"))


def branches(wire: Wire) -> None:
    wire.greeting()
    wire.ask(SkipDownstreamTasks(tasks=["left", ("right", 3)]))
    wire.ask(SetRenderedMapIndex("the third"))
    wire.succeed()


def succeeds_and_exits_with_3(wire: Wire) -> None:
    wire.greeting()
    wire.succeed()
    os._exit(3)


def sends_everything_and_leaves(wire: Wire) -> None:
    wire.greeting()
    frames = [wire.session.request(body)[1] for body in (GetVariable("a"), SucceedTask(end_date=now()))]
    wire.comm.sendall(b"".join(frames))
    os._exit(0)


def tells_secrets(wire: Wire) -> None:
    wire.greeting()
    wire.ask(MaskSecret("swordfish"))
    wire.ask(GetConnection("vault"))
    wire.say("password swordfish or open-sesame")
    os.write(wire.logs, b'{"event":"it is open-sesame","level":"info","where":["swordfish"]}\n')
    wire.succeed()


def finds_out_what_it_is(wire: Wire) -> None:
    wire.greeting()
    fds = [fd for fd in range(256) if _is_open(fd)]
    wire.say(f"leads {os.getsid(0) == os.getpid() == os.getpgid(0)}")
    wire.say(f"fds {len(fds)}")
    wire.say(f"stdin {os.readlink('/proc/self/fd/0')}")
    wire.say(f"sigterm {signal.getsignal(signal.SIGTERM) is signal.SIG_DFL}")
    wire.say(f"sigchld {signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL}")
    wire.say(f"secret {os.environ.get('STANNEL__DATABASE__SQL_ALCHEMY_CONN')}")
    wire.succeed()


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def asks_badly(wire: Wire) -> None:
    """Every malformed request gets an error and leaves the connection usable."""
    wire.greeting()
    for body in ({"type": "NoSuchThing"}, {"type": "GetVariable"}, {"type": "GetVariable", "key": 5}, None, [1], {}):
        wire.comm.sendall(frame(msgspec.msgpack.encode([0, body])))
        assert wire.answer().error is not None
    for request_id in (7, 7, 3, 0, 2**31 - 1):
        wire.comm.sendall(frame(msgspec.msgpack.encode([request_id, {"type": "GetVariable", "key": "a"}, "junk"])))
        assert wire.answer().id == request_id
    wire.comm.sendall(frame(msgspec.msgpack.encode([0, {"type": "SucceedTask", "end_date": now(), "odd": 1}, None])))
    assert wire.answer() == Answered(0, None, None)


def speaks_byte_by_byte(wire: Wire) -> None:
    wire.greeting()
    _, data = wire.session.request(SucceedTask(end_date=now()))
    for byte in data:
        wire.comm.sendall(bytes([byte]))
    wire.answer()


def reports_twice(wire: Wire) -> None:
    wire.greeting()
    wire.succeed()
    assert wire.ask(TaskState(state="failed", end_date=now())).error is not None


def asks_in_a_burst(wire: Wire) -> None:
    wire.greeting()
    frames = [wire.session.request(GetVariable(str(number)))[1] for number in range(500)]
    threading.Thread(target=wire.comm.sendall, args=(b"".join(frames),)).start()
    ids: list[int] = []
    while len(ids) < 500:
        ids += [answered.id for answered in wire.session.feed(wire.comm.recv(65536))]
    assert ids == list(range(500))
    wire.succeed()


# -- hostile ones


def exits_without_a_result(wire: Wire) -> None:
    wire.greeting()
    wire.say("I leave")


def exits_with_3(wire: Wire) -> None:
    os._exit(3)


def dies_by_sigkill(wire: Wire) -> None:
    wire.greeting()
    os.kill(os.getpid(), signal.SIGKILL)


def dies_by_sigsegv(wire: Wire) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def floods_before_it_reads(wire: Wire) -> None:
    half = b"x" * 1023 + b"\n"
    for _ in range(1024):
        os.write(wire.stdout, half)
        os.write(wire.stderr, half)
    wire.greeting()
    wire.say("now I have read")
    wire.succeed()


def prints_garbage(wire: Wire) -> None:
    wire.greeting()
    os.write(wire.stdout, b"caf\xe9 \xff\xfe\n")
    os.write(wire.logs, b'\xff{"not json\n[1, 2]\n{"level": 7, "event": "numeric level"}\n')
    wire.succeed()


def sends_a_zero_length_frame(wire: Wire) -> None:
    _break(wire, struct.pack(">I", 0))


def announces_too_much(wire: Wire) -> None:
    _break(wire, struct.pack(">I", 2**32 - 1))


def sends_no_array(wire: Wire) -> None:
    _break(wire, frame(msgspec.msgpack.encode({"type": "SucceedTask"})))


def sends_a_short_array(wire: Wire) -> None:
    _break(wire, frame(msgspec.msgpack.encode([1])))


def sends_an_id_of_text(wire: Wire) -> None:
    _break(wire, frame(msgspec.msgpack.encode(["one", {"type": "GetVariable", "key": "a"}])))


def sends_c1(wire: Wire) -> None:
    _break(wire, frame(b"\xc1"))


def sends_trailing_bytes(wire: Wire) -> None:
    _break(wire, frame(msgspec.msgpack.encode([0, {"type": "GetVariable", "key": "a"}]) + b"\x00"))


def reports_a_protocol_error(wire: Wire) -> None:
    _break(wire, frame(msgspec.msgpack.encode([0, None, {"error": "bad_greeting", "detail": None}])))


def _break(wire: Wire, data: bytes) -> None:
    wire.greeting()
    wire.comm.sendall(data)
    forever()


def dies_in_the_header(wire: Wire) -> None:
    wire.greeting()
    wire.comm.sendall(b"\x00\x00")


def dies_in_the_payload(wire: Wire) -> None:
    wire.greeting()
    wire.comm.sendall(wire.session.request(SucceedTask(end_date=now()))[1][:-3])


def closes_comm_and_stays(wire: Wire) -> None:
    wire.greeting()
    wire.comm.close()
    wire.say("closed")
    forever()


def leaves_a_grandchild_on_the_pipes(wire: Wire) -> None:
    wire.greeting()
    if os.fork() == 0:
        forever()
    wire.succeed()


def leaves_a_daemon_on_the_pipes(wire: Wire) -> None:
    """The daemon has a session of its own, so no signal to the group reaches it."""
    wire.greeting()
    reader, writer = os.pipe()
    if (daemon := os.fork()) == 0:
        os.setsid()
        os.write(writer, b"x")
        forever()
    os.read(reader, 1)
    wire.say(f"daemon {daemon}")
    wire.succeed()


def forks_fifty(wire: Wire) -> None:
    wire.greeting()
    pids = []
    for _ in range(50):
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            forever()
        pids.append(pid)
    wire.say("pids " + " ".join(map(str, pids)))
    wire.succeed()


def ignores_sigterm(wire: Wire) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wire.greeting()
    wire.say("ignoring")
    forever()


def runs_long(wire: Wire) -> None:
    wire.greeting()
    wire.say("running")
    forever()


def reports_when_told_to_stop(wire: Wire) -> None:
    wire.greeting()

    def stop(*_: object) -> None:
        wire.ask(TaskState(state="failed", end_date=now()))
        wire.say("I was told")
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    wire.say("running")
    forever()


def hangs_after_its_result(wire: Wire) -> None:
    wire.greeting()
    wire.succeed()
    forever()


def never_reads_its_replies(wire: Wire) -> None:
    wire.greeting()
    wire.comm.setblocking(False)
    _, data = wire.session.request(GetVariable("big"))
    sent = 0
    try:
        while True:
            sent += wire.comm.send(data)
    except BlockingIOError:
        wire.say(f"sent {sent}")
    forever()


def waits_for_a_word(wire: Wire) -> None:
    """Runs until the desk answers its question, then succeeds: for tests that do something in between."""
    wire.greeting()
    wire.say("waiting")
    wire.ask(GetVariable("word"))
    wire.succeed()


def main_thread_only(wire: Wire) -> None:
    wire.greeting()
    wire.say(f"threads {threading.active_count()} from {Path(sys.argv[0]).name}")
    wire.succeed()


def dies_when_told(wire: Wire) -> None:
    wire.greeting()
    wire.say("waiting")
    wire.ask(GetVariable("word"))
    os._exit(5)


def marks_its_run(wire: Wire) -> None:
    wire.greeting()
    wire.say("ran")
    wire.succeed()
