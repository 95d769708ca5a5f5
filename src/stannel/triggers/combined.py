"""Triggers made of triggers: the first of several that fires, or all of them."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from stannel.errors import StannelError
from stannel.triggers.base import BaseTrigger, TriggerEvent
from stannel.triggers.loading import load_trigger

Name: TypeAlias = str | int
Triggers: TypeAlias = Sequence[BaseTrigger] | Mapping[str, BaseTrigger] | Sequence[Sequence[Any]]


class PartFailed(StannelError):
    """One of several triggers that are waited for together ended without an event; the others were stopped."""

    def __init__(self, name: Name, classpath: str, reason: str) -> None:
        super().__init__(f"The trigger {name!r} ({classpath}) {reason}, so the whole wait fails.")
        self.name, self.classpath, self.reason = name, classpath, reason


Outcomes: TypeAlias = "asyncio.Queue[tuple[Name, TriggerEvent | PartFailed]]"


class Combined(BaseTrigger):
    """Runs its parts side by side until one of them fails or enough have fired.

    `triggers` are a list, a dict by name, or what `serialize` made of either.
    """

    def __init__(self, triggers: Triggers) -> None:
        super().__init__()
        self.parts = _parts_of(triggers)
        self.queue = _one_queue(self.parts.values())
        # `on_kill` is for parts that still wait, `cleanup` for those that were not cleaned up when they fired.
        self._waiting, self._unclean = set(self.parts), set(self.parts)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kind = type(self)
        return (
            f"{kind.__module__}.{kind.__qualname__}",
            {"triggers": [[name, *part.serialize()] for name, part in self.parts.items()]},
        )

    @abstractmethod
    async def _decide(self, outcomes: Outcomes) -> Any:
        """The payload, when enough parts have fired; `PartFailed` when one failed before."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        self._introduce()
        outcomes: Outcomes = asyncio.Queue()
        tasks = {name: asyncio.create_task(self._run_part(name, outcomes)) for name in self.parts}
        try:
            payload = await self._decide(outcomes)
            # Nobody may kill what is not waited for any more.
            losers, self._waiting = self._waiting, set()
            for name in losers:
                tasks[name].cancel()
            yield TriggerEvent(payload)
        finally:
            for name in self._waiting:
                tasks[name].cancel()
            await asyncio.wait(tasks.values())

    async def _run_part(self, name: Name, outcomes: Outcomes) -> None:
        part = self.parts[name]
        outcome: TriggerEvent | PartFailed
        try:
            event = await _first_event(part)
            outcome = event if isinstance(event, TriggerEvent) else _failed(name, part, event)
        except asyncio.CancelledError:
            outcomes.put_nowait((name, _failed(name, part, "was cancelled")))
            raise
        # Whatever an author's trigger raises is that trigger's failure.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            outcome = _failed(name, part, f"raised {type(error).__name__}: {error}", error)
        self._waiting.discard(name)
        outcomes.put_nowait((name, outcome))
        await self._clean(name)

    async def on_kill(self) -> None:
        """Ask every part that still waits to kill what it waits for."""
        self._introduce()
        await asyncio.gather(*(self._call("on_kill", name, self.parts[name].on_kill) for name in self._waiting))

    async def cleanup(self) -> None:
        """Clean up every part that has not been."""
        await asyncio.gather(*(self._clean(name) for name in self._unclean))

    async def _clean(self, name: Name) -> None:
        if name in self._unclean:
            self._unclean.discard(name)
            await self._call("cleanup", name, self.parts[name].cleanup)

    async def _call(self, what: str, name: Name, hook: Callable[[], Awaitable[None]]) -> None:
        try:
            await hook()
        # One part's hook must not keep the others from theirs.
        except Exception:
            self.log.warning("The %s() of the trigger %r failed", what, name, exc_info=True)

    def _introduce(self) -> None:
        for part in self.parts.values():
            part.trigger_id, part.timeout_after = self.trigger_id, self.timeout_after
            part.task_instance = self.task_instance


class AnyOf(Combined):
    """Fires when the first of its triggers does: `{"which": its name or place, "event": its payload}`."""

    async def _decide(self, outcomes: Outcomes) -> dict[str, Any]:
        name, outcome = await outcomes.get()
        if isinstance(outcome, PartFailed):
            raise outcome
        return {"which": name, "event": outcome.payload}


class AllOf(Combined):
    """Fires when all of its triggers have: their payloads in order, or by name if they have names."""

    async def _decide(self, outcomes: Outcomes) -> list[Any] | dict[Name, Any]:
        payloads: dict[Name, Any] = {}
        while len(payloads) < len(self.parts):
            name, outcome = await outcomes.get()
            if isinstance(outcome, PartFailed):
                raise outcome
            payloads[name] = outcome.payload
        in_order = {name: payloads[name] for name in self.parts}
        return in_order if all(isinstance(name, str) for name in in_order) else list(in_order.values())


def _parts_of(triggers: Triggers) -> dict[Name, BaseTrigger]:
    named = triggers.items() if isinstance(triggers, Mapping) else map(_named, range(len(triggers)), triggers)
    pairs: list[tuple[Name, BaseTrigger]] = list(named)
    parts = dict(pairs)
    if not parts:
        raise ValueError("At least one trigger is needed to wait for.")
    if len(parts) < len(pairs):
        raise ValueError("Two of the triggers have the same name; give each a name of its own.")
    for name, part in parts.items():
        if not isinstance(part, BaseTrigger):
            raise TypeError(f"{name!r} is no trigger but a {type(part).__name__}; only triggers can be waited for.")
    return parts


def _named(place: int, given: Any) -> tuple[Name, BaseTrigger]:
    if not isinstance(given, list | tuple):
        return place, given
    name, classpath, kwargs = given
    try:
        return name, load_trigger(classpath, kwargs)
    except Exception as error:
        raise PartFailed(name, classpath, f"cannot be made: {error}") from error


def _one_queue(parts: Any) -> str | None:
    """The queue that the parts ask for; they run in one process, so there is at most one."""
    queues = {part.queue for part in parts} - {None}
    if len(queues) > 1:
        raise ValueError(f"Triggers of the queues {', '.join(sorted(queues))} cannot be waited for together.")
    return next(iter(queues), None)


async def _first_event(part: BaseTrigger) -> TriggerEvent | str:
    """The event, or why there is none."""
    events: Any = part.run()
    try:
        async for event in events:
            return event if isinstance(event, TriggerEvent) else f"yielded {event!r}, which is no TriggerEvent"
        return "ended without an event"
    finally:
        if hasattr(events, "aclose"):
            await events.aclose()


def _failed(name: Name, part: BaseTrigger, reason: str, cause: BaseException | None = None) -> PartFailed:
    kind = type(part)
    failure = PartFailed(name, f"{kind.__module__}.{kind.__qualname__}", reason)
    failure.__cause__ = cause
    return failure
