"""Knows which trigger the running code belongs to: its lines, its questions, its tasks, and the step under way."""

import asyncio
import mmap
import os
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from typing import Any, TypeAlias

SLOT_BYTES = 8
AnyTask: TypeAlias = asyncio.Task[Any]

# The id of the trigger whose code runs at this moment, 0 for none; another process can read it even while the
# interpreter is stuck.
_step = memoryview(bytearray(SLOT_BYTES)).cast("q")


def share_step(fd: int) -> None:
    """From now on write the id of the trigger that is running into this file."""
    global _step
    if os.fstat(fd).st_size < SLOT_BYTES:
        os.ftruncate(fd, SLOT_BYTES)
    _step = memoryview(mmap.mmap(fd, SLOT_BYTES)).cast("q")


class Owner:
    """To whom code belongs. `tasks` are those it has begun and not ended; None: it never began one."""

    __slots__ = ("id", "tasks")

    def __init__(self, trigger_id: int) -> None:
        self.id = trigger_id
        self.tasks: set[AnyTask] | None = None

    def adopt(self, task: AnyTask) -> None:
        if self.tasks is None:
            self.tasks = set()
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


owner: ContextVar[Owner | None] = ContextVar("stannel_trigger", default=None)


def owner_id() -> int | None:
    """The trigger whose code this is. None: nobody's."""
    found = owner.get()
    return None if found is None else found.id


class TriggerExit(Exception):
    """Code of a trigger tried to end the whole process; it ends only itself."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__} was raised in a trigger; it ends the trigger, not the process")


class Steps(Coroutine[Any, Any, Any]):
    """A coroutine of a trigger that says, at each step, whose step it is."""

    __slots__ = ("inner", "owner")

    def __init__(self, inner: Coroutine[Any, Any, Any], whose: Owner) -> None:
        self.inner, self.owner = inner, whose

    def send(self, value: Any) -> Any:
        _step[0] = self.owner.id
        try:
            return self.inner.send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            raise TriggerExit(error) from error
        finally:
            _step[0] = 0

    def throw(self, *error: Any) -> Any:
        _step[0] = self.owner.id
        try:
            return self.inner.throw(*error)
        except (SystemExit, KeyboardInterrupt) as problem:
            raise TriggerExit(problem) from problem
        finally:
            _step[0] = 0

    def close(self) -> None:
        self.inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.inner.__await__()

    def __getattr__(self, name: str) -> Any:
        # Libraries look at a task's coroutine to learn its name and whether it has begun.
        return getattr(self.inner, name)


def make_task(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    context: Context | None = None,
) -> asyncio.Future[Any]:
    """The loop's task factory: a task begun by code of a trigger is that trigger's."""
    found = owner.get() if context is None else context.get(owner)
    if found is None:
        return asyncio.Task(coro, loop=loop, context=context)
    task = asyncio.Task(Steps(coro, found), loop=loop, context=context)  # type: ignore[arg-type]
    found.adopt(task)
    return task


def begin(loop: asyncio.AbstractEventLoop, whose: Owner, work: Callable[[], Coroutine[Any, Any, Any]]) -> AnyTask:
    """A task in the name of a trigger, which is not counted among those it began."""
    context = Context()
    context.run(owner.set, whose)
    return asyncio.Task(Steps(work(), whose), loop=loop, name="trigger", context=context)
