"""Waking many tasks at once: one callback of the loop for all who wait, instead of a future and a callback for each."""

import asyncio
import contextlib
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, TypeAlias

Future: TypeAlias = "asyncio.Future[None]"


class Waiter:
    """What one task awaits, again and again; asyncio takes it for a future (see `asyncio.isfuture`)."""

    __slots__ = ("_asyncio_future_blocking", "_bell", "_cancelled", "_loop", "context", "wakeup")

    def __init__(self, bell: "Bell") -> None:
        self._bell = bell
        self._loop = bell.loop
        self._asyncio_future_blocking = False
        self._cancelled: tuple[Any, ...] = ()
        self.wakeup: Callable[[Any], None] | None = None
        self.context: Context | None = None

    def __await__(self) -> Generator[Any, None, None]:
        self._asyncio_future_blocking = True
        self._bell.waiting.append(self)
        yield self

    def add_done_callback(self, wakeup: Callable[[Any], None], *, context: Context | None = None) -> None:
        self.wakeup = wakeup
        self.context = context

    def cancel(self, msg: Any = None) -> bool:
        """End the wait of this task alone. False: it does not wait any more."""
        wakeup, self.wakeup = self.wakeup, None
        if wakeup is None:
            return False
        self._bell.forget(self)
        self._cancelled = () if msg is None else (msg,)
        self._loop.call_soon(wakeup, self, context=self.context)
        return True

    def result(self) -> None:
        """Asked by the task whose wait was cancelled; who is woken is given another future, and does not ask."""
        raise asyncio.CancelledError(*self._cancelled)


class Bell:
    """Wakes all who wait in the next turn of the loop. They look for themselves whether there is something for them."""

    __slots__ = ("_context", "_done", "is_rung", "loop", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.waiting: list[Waiter | Future] = []
        self.is_rung = False
        self._context = Context()
        self._done: Future = loop.create_future()
        self._done.set_result(None)

    def alone(self) -> Future:
        """To be awaited instead of a waiter by one who is the only one: a callback for all would cost it more."""
        future: Future = asyncio.Future(loop=self.loop)
        self.waiting.append(future)
        return future

    def forget(self, waiter: Waiter) -> None:
        """It is not to be woken."""
        with contextlib.suppress(ValueError):
            self.waiting.remove(waiter)

    def ring(self) -> None:
        waiting = self.waiting
        if len(waiting) > 1:
            if not self.is_rung:
                self.is_rung = True
                self.loop.call_soon(self._wake_all, context=self._context)
        elif waiting and not self.is_rung:
            waiter = waiting.pop()
            if type(waiter) is Waiter:
                wakeup, waiter.wakeup = waiter.wakeup, None
                if wakeup is not None:
                    self.loop.call_soon(wakeup, self._done, context=waiter.context)
            elif not waiter.done():  # type: ignore[union-attr]
                waiter.set_result(None)  # type: ignore[union-attr]

    def _wake_all(self) -> None:
        self.is_rung = False
        # From here on whoever waits, or waits again, is on a new list.
        woken, self.waiting = self.waiting, []
        woken.reverse()
        done = self._done
        try:
            while woken:
                waiter = woken.pop()
                if type(waiter) is Waiter:
                    wakeup = waiter.wakeup
                    if wakeup is not None:
                        waiter.wakeup = None
                        waiter.context.run(wakeup, done)  # type: ignore[union-attr]
                elif not waiter.done():  # type: ignore[union-attr]
                    waiter.set_result(None)  # type: ignore[union-attr]
        finally:
            # A task may end the program (SystemExit); those behind it still wait, and are not lost.
            if woken:
                self.waiting += reversed(woken)
                self.ring()
