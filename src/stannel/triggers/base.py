"""What a trigger is: a wait that can be stored, moved to another process and run there, and the events that end it."""

import importlib
import logging
from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeAlias

from stannel.model.masking import SecretMask
from stannel.model.states import TaskState

# Arguments that `serialize` marks with this prefix reach the constructor without it; to everybody else they are secret.
ENCRYPTED_PREFIX = "encrypted__"
_secrets = SecretMask([ENCRYPTED_PREFIX])


@dataclass
class StartTriggerArgs:
    """How a task begins its life deferred: the trigger, and where the task goes on. No method: the trigger ends it."""

    trigger_cls: str
    next_method: str | None = None
    trigger_kwargs: dict[str, Any] | None = None
    next_kwargs: dict[str, Any] | None = None
    timeout: timedelta | None = None


class TriggerEvent:
    """Something a trigger waited for has happened. The payload is what the waiting task is given.

    The rest is for events of assets: `identity` is equal when the same thing is told again, which is then only counted;
    `key` is the event's partition key, `extra` is added to what is stored with it, `timestamp` is when it happened.
    `state` is kept in the asset's state store in the same transaction, so that a cursor and its event never part; a
    value of None forgets its key.
    """

    identity: str | None = None
    key: str | None = None
    extra: Mapping[str, Any] | None = None
    timestamp: datetime | None = None
    state: Mapping[str, Any] | None = None

    def __init__(
        self,
        payload: Any = None,
        *,
        identity: str | None = None,
        key: str | None = None,
        extra: Mapping[str, Any] | None = None,
        timestamp: datetime | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self.payload = payload
        # Streams make very many events, and most have none of these.
        if identity is not None:
            self.identity = identity
        if key is not None:
            self.key = key
        if extra is not None:
            self.extra = extra
        if timestamp is not None:
            self.timestamp = timestamp
        if state is not None:
            self.state = state

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TriggerEvent<{self.payload!r}>"


class BaseTaskEndEvent(TriggerEvent):
    """Ends the waiting task in a state of its own, without a worker, and leaves these XComs behind."""

    task_instance_state: ClassVar[TaskState]

    def __init__(self, *, xcoms: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if "payload" in kwargs:
            raise ValueError("Param 'payload' not supported for this class.")
        if kwargs:
            raise TypeError(f"{type(self).__name__}() has no argument {min(kwargs)!r}; it takes xcoms only.")
        super().__init__(str(self.task_instance_state))
        self.xcoms = xcoms

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self.payload!r}>"


class TaskSuccessEvent(BaseTaskEndEvent):
    """The task has succeeded."""

    task_instance_state = TaskState.SUCCESS


class TaskFailedEvent(BaseTaskEndEvent):
    """The task has failed; it is tried again if it has tries left."""

    task_instance_state = TaskState.FAILED


class TaskSkippedEvent(BaseTaskEndEvent):
    """The task is skipped."""

    task_instance_state = TaskState.SKIPPED


TaskFailureEvent = TaskFailedEvent
DiscrimatedTriggerEvent: TypeAlias = TriggerEvent | TaskSuccessEvent | TaskFailedEvent | TaskSkippedEvent


class BaseTrigger(ABC):
    """A wait. It is made where a task defers, stored as what `serialize` gives, and made again where it is run.

    It may be run more than once and in more than one place.
    """

    trigger_queue_inherited_from_task: bool = True
    queue: str | None = None

    # Authors forget super().__init__(): every attribute has its default here, and costs a waiting trigger nothing.
    trigger_id: int | None = None
    triggerer_job_id: int | None = None
    task_id: str | None = None
    timeout_after: datetime | None = None
    template_fields: Sequence[str] = ()
    template_ext: Sequence[str] = ()
    _task_instance: Any = None

    def __init__(self, **kwargs: Any) -> None:  # noqa: B027 - there is nothing to set
        pass

    @abstractmethod
    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The dotted path of the class, and the arguments that make an equal trigger. They must be storable."""

    @abstractmethod
    def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield at least one event. Written as `async def` with `yield`; it must never block."""

    async def cleanup(self) -> None:  # noqa: B027 - a hook
        """Called once when the run is over, for whatever reason."""

    async def on_kill(self) -> None:  # noqa: B027 - a hook
        """Called once, before `cleanup`, when a person ended the wait; never for a move, a timeout or a restart."""

    @property
    def log(self) -> logging.Logger:
        """Lines written here appear in the log of the waiting task."""
        return logging.getLogger(f"stannel.triggers.{type(self).__name__}")

    @property
    def task_instance(self) -> Any:
        """The task instance that waits. None: the trigger does not run yet, or no task waits for it."""
        return self._task_instance

    @task_instance.setter
    def task_instance(self, value: Any) -> None:
        self._task_instance = value
        task = self.task
        if task is None:
            return
        self.task_id = task.task_id
        start = getattr(task, "start_trigger_args", None)
        if start is not None:
            given = start.trigger_kwargs or {}
            self.template_fields = tuple(name for name in task.template_fields if name in given and hasattr(self, name))
            self.template_ext = tuple(task.template_ext)

    @property
    def task(self) -> Any:
        """The operator that waits. None: it is not known here."""
        return getattr(self.task_instance, "task", None)

    def render_template_fields(self, context: Mapping[str, Any], jinja_env: Any = None) -> None:
        """Render the templates in `template_fields`, for a trigger that no worker has rendered."""
        for name in self.template_fields:
            value = getattr(self, name, None)
            if _holds_template(value):
                jinja_env = jinja_env or _plain_environment()
                setattr(self, name, _rendered(value, context, jinja_env))

    def __repr__(self) -> str:
        classpath, kwargs = self.serialize()
        shown = ", ".join(f"{name}={value!r}" for name, value in _secrets.redact(dict(kwargs)).items())
        return f"<{classpath} {shown}>" if shown else f"<{classpath}>"


class BaseEventTrigger(BaseTrigger):
    """A trigger that may also watch for an asset, and may share what it reads with others like it."""

    trigger_queue_inherited_from_task = False
    asset_state_store: Any = None

    def __init__(self, *, queue: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if queue is not None:
            self.queue = queue

    @staticmethod
    def hash(classpath: str, kwargs: dict[str, Any]) -> int:
        """A number that is equal for equal triggers, in every process."""
        # Loaded on first use: the library behind it would be part of every process forked for a task.
        hashlib = importlib.import_module("hashlib")
        digest = hashlib.blake2b(f"{classpath}{_in_order(kwargs)!r}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)

    def shared_stream_key(self) -> Hashable | None:
        """Triggers with equal keys read one stream together. None: this one reads alone."""
        return None

    @classmethod
    def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        """The raw events of a group, read once for all its triggers; `kwargs` are those of one of them."""
        raise NotImplementedError(f"{cls.__name__} has a shared_stream_key but no open_shared_stream().")

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> Any:
        """The source of a stream whose broker is told what was stored. Overriding this turns that on."""
        raise NotImplementedError(f"{cls.__name__} has no create_shared_stream_producer().")

    def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """The events that this trigger makes of the raw ones."""
        raise NotImplementedError(f"{type(self).__name__} has a shared_stream_key but no filter_shared_stream().")


def _in_order(value: Any) -> Any:
    """The value in a form whose repr does not depend on the order in which it was built."""
    if isinstance(value, Mapping):
        return sorted(((repr(key), _in_order(item)) for key, item in value.items()), key=lambda pair: pair[0])
    if isinstance(value, list | tuple):
        return [_in_order(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_in_order(item) for item in value), key=repr)
    return value


def _holds_template(value: Any) -> bool:
    if isinstance(value, str):
        return any(mark in value for mark in ("{{", "{%", "{#"))
    if isinstance(value, dict):
        return any(_holds_template(item) for item in value.values())
    return isinstance(value, list | tuple | set) and any(_holds_template(item) for item in value)


def _plain_environment() -> Any:
    jinja2 = importlib.import_module("jinja2")
    return jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)


def _rendered(value: Any, context: Mapping[str, Any], environment: Any) -> Any:
    if isinstance(value, str):
        template = environment.from_string(value)
        # A context computes its values when they are read; `render` would copy it, and so read them all.
        names = template.new_context(ChainMap(context, template.globals), shared=True)  # type: ignore[arg-type]
        return environment.concat(template.root_render_func(names))
    if isinstance(value, dict):
        return {key: _rendered(item, context, environment) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)(_rendered(item, context, environment) for item in value)
    return value
