"""The wire between a triggerer and its host, the process that runs the triggers.

Frames as everywhere; each is one `Command` (to the host) or one `Report` (from it). Both sides may speak at any time.
"""

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from stannel.model.trigger import CancelReason, Event
from stannel.protocol.frames import encode_frame


class Waiter(Struct, frozen=True, array_like=True):
    """The task instance that waits for a trigger."""

    ti_id: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int


class TriggerStart(Struct, frozen=True, array_like=True):
    """A trigger to be run. `only_kill`: not run at all; its `on_kill` and `cleanup` are called.

    `startup` is the encoded greeting of the task, for a trigger whose arguments may hold templates. `assets` are the
    names and URIs of those that a watcher serves.
    """

    id: int
    epoch: int
    classpath: str
    kwargs: dict[str, Any]
    waiter: Waiter | None = None
    timeout_after: datetime | None = None
    only_kill: bool = False
    startup: bytes | None = None
    assets: list[tuple[str, str]] = []


class StreamLimits(Struct, frozen=True):
    """How shared streams treat those who are slow or late: see the settings of the same names.

    A stream that is given up waits `close_seconds` for its readers to end, and as long for its last confirmations.
    """

    queue_size: int = 1024
    ack_timeout: float = 300.0
    grace_period: float = 0.0
    overflow: Literal["fail", "block"] = "fail"
    close_seconds: float = 2.0


class HostSetup(Struct, frozen=True, tag=True):
    """The first command: where DAG files are, and the host's limits (seconds)."""

    dags_folder: str
    blocked_warning: float
    on_kill_timeout: float
    cancel_grace: float
    log_level: str = "INFO"
    streams: StreamLimits = StreamLimits()


class StartTriggers(Struct, frozen=True, tag=True):
    """Run these."""

    triggers: list[TriggerStart]


class CancelTriggers(Struct, frozen=True, tag=True):
    """Stop these, each for its reason. Said once: a trigger that is being stopped keeps its full time."""

    triggers: list[tuple[int, CancelReason]]


class Answer(Struct, frozen=True, tag=True):
    """The reply to an `Ask`, or the error it met; both are messages of the task protocol."""

    id: int
    body: Raw
    error: Raw


class News(Struct, frozen=True, tag=True):
    """Runs of these DAGs ended; whoever waits for one should look."""

    dag_ids: list[str]


class Confirmed(Struct, frozen=True, tag=True):
    """The events that were fired with these numbers are stored; their streams may go on."""

    numbers: list[int]


class Registered(Struct, frozen=True, tag=True):
    """The watchers that read the stream of this key, those that do not run at the moment included; said first.

    None: the stream has no place here any more, and is closed as soon as what was fired is confirmed or given up.
    """

    stream_key: str
    ids: list[int]


class Drain(Struct, frozen=True, tag=True):
    """Stop everything without `on_kill`, say what is left to say, then exit."""


Command: TypeAlias = HostSetup | StartTriggers | CancelTriggers | Answer | News | Confirmed | Registered | Drain


class Fired(Struct, frozen=True, tag=True):
    """A trigger yielded an event.

    `number`: a stream waits until it is stored. `position`: a name for it that is equal when its broker repeats it.
    """

    id: int
    epoch: int
    event: Event
    number: int | None = None
    position: str | None = None


class Failed(Struct, frozen=True, tag=True):
    """A trigger ended, or could not begin, without an event."""

    id: int
    epoch: int
    error: str
    traceback: list[str] | None


class Finished(Struct, frozen=True, tag=True):
    """A trigger is gone from the host: run, `on_kill` and `cleanup` are over."""

    id: int
    epoch: int


class LogRecord(Struct, frozen=True, array_like=True):
    """A line a trigger wrote. `trigger_id` None: it belongs to the host itself."""

    trigger_id: int | None
    timestamp: str
    level: str
    logger: str
    event: str
    fields: dict[str, Any] | None = None


class Logged(Struct, frozen=True, tag=True):
    """Lines, in order."""

    records: list[LogRecord]


class Ask(Struct, frozen=True, tag=True):
    """A trigger asks what a task may ask; `body` is a request of the task protocol."""

    id: int
    trigger_id: int | None
    body: Raw


class Alive(Struct, frozen=True, tag=True):
    """The host's loop turns: sent a few times a second, so silence means it does not."""

    turns: int
    running: int
    memory: int


class Blocking(Struct, frozen=True, tag=True):
    """The loop stands still in code of this trigger (None: nobody's). Sent by a thread of its own, while it stands."""

    trigger_id: int | None
    seconds: float
    file: str
    line: int
    function: str
    stack: list[str]


class Stuck(Struct, frozen=True, tag=True):
    """A trigger was told to stop, had its time, and is still there; the host should be given nothing more."""

    trigger_id: int


class Loaded(Struct, frozen=True, tag=True):
    """Files of trigger code the host has imported since the last such report, with their fingerprints."""

    files: dict[str, str]


class StreamEnded(Struct, frozen=True, tag=True):
    """A stream that has no place here any more is closed; nothing of it will be said to its broker."""

    stream_key: str


class Streams(Struct, frozen=True, tag=True):
    """How the streams of the host stand, now and then; each with its `key`."""

    figures: list[dict[str, Any]]


Report: TypeAlias = Fired | Failed | Finished | Logged | Ask | Alive | Blocking | Stuck | Loaded | StreamEnded | Streams

_encoder = msgspec.msgpack.Encoder()
decode_command = msgspec.msgpack.Decoder(Command).decode
decode_report = msgspec.msgpack.Decoder(Report).decode


def frame(message: Command | Report) -> bytes:
    """The message as it goes over the wire. What msgpack cannot carry raises `TypeError` or `OverflowError`."""
    return encode_frame(_encoder.encode(message))
