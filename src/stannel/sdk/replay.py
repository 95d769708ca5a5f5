"""How a function that waited is run again up to where it was: the history of its waits and steps, met in order.

A wait ends the process. The next one calls the function again from its first line, and each wait or kept step that is
already in the history gives at once what it gave before. What a function does between them is therefore done again.
"""

import importlib
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, NoReturn

import msgspec

from stannel.model.trigger import FailureReason
from stannel.sdk import serde
from stannel.sdk.exceptions import AirflowException, TaskDeferralError, TaskDeferralTimeout, TaskDeferred
from stannel.sdk.log import TASK_LOGGER

_log = logging.getLogger(TASK_LOGGER)

# Where a function operator goes on, and the argument in which the history travels there.
REPLAY_METHOD = "replay_callable"
HISTORY = "history"
# It is stored at every wait, and read and written as a whole.
LARGEST_HISTORY = 1024 * 1024


class ReplayMismatch(AirflowException):
    """A function did something else than the last time before a wait, so what is known of it cannot be used."""


class Kind(StrEnum):
    """What a wait or step came to."""

    EVENT = "event"
    TIMEOUT = "timeout"
    FAILURE = "failure"
    VALUE = "value"
    ERROR = "error"


@dataclass(frozen=True)
class Step:
    """A wait or a kept step that is over. `what` names it; meeting another name at its place is a mismatch."""

    what: str
    kind: Kind
    value: Any

    def outcome(self) -> Any:
        """What it gave, or what it raised, once more."""
        if self.kind is Kind.TIMEOUT:
            raise TaskDeferralTimeout(str(self.value))
        if self.kind is Kind.FAILURE:
            raise TaskDeferralError(str(self.value))
        if self.kind is Kind.ERROR:
            raise error_again(self.value)
        return self.value


def answered(history: Sequence[Sequence[Any]], *, event: Any = None, error: str | None = None) -> list[Step]:
    """The history of a resumed function: what it took along, its last wait ended by this event or error."""
    *over, (waited_for, *_) = history
    steps = [Step(what, Kind(kind), value) for what, kind, value in over]
    if error is None:
        return [*steps, Step(waited_for, Kind.EVENT, event)]
    kind = Kind.TIMEOUT if error == FailureReason.TIMEOUT else Kind.FAILURE
    return [*steps, Step(waited_for, kind, error)]


class Replay:
    """One call of a function that may wait."""

    def __init__(self, history: Sequence[Step] = ()) -> None:
        self._steps = list(history)
        self._known = len(self._steps)
        self._place = 0
        self._inside: str | None = None
        self._broken: AirflowException | None = None
        self._is_deferred = False
        self._home: tuple[int, Any] = (threading.get_ident(), _async_task())

    # --- around the function ---------------------------------------------------------------------------------------

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the function; for an async one, give what is to be awaited."""
        if self._known:
            _log.info("The function runs again from its beginning; %d of its waits and steps are known", self._known)
        with _active(self):
            result = function(*args, **kwargs)
        if inspect.isawaitable(result):
            return self._later(result)
        self._finish()
        return result

    async def _later(self, result: Any) -> Any:
        self._home = (threading.get_ident(), _async_task())
        with _active(self):
            value = await result
        self._finish()
        return value

    def _finish(self) -> None:
        if self._is_deferred:
            raise AirflowException(
                "The function went on after a wait had deferred it, so what it did is not known to be right. "
                "Let TaskDeferred pass: no bare `except:`, no `except BaseException`, no `return` in `finally`."
            )
        if self._broken is not None:
            raise self._broken
        if self._place < self._known:
            raise self._mismatch("the function ended")

    # --- inside the function ---------------------------------------------------------------------------------------

    def met(self, what: str) -> Step | None:
        """The function has come to this wait or step: what is known of it. None: it is new."""
        self._check_place(what)
        if self._place >= len(self._steps):
            return None
        step = self._steps[self._place]
        if step.what != what:
            raise self._mismatch(f"it came to {what}")
        self._place += 1
        return step

    def add(self, what: str, kind: Kind, value: Any) -> Step:
        """Remember what a new step came to."""
        step = Step(what, kind, value)
        self._steps.append(step)
        self._place += 1
        return step

    def defer(self, what: str, trigger: Any, timeout: timedelta | float | None) -> NoReturn:
        """End the process here; the trigger waits on."""
        history = [[step.what, step.kind.value, step.value] for step in self._steps]
        self._check_size(history)
        wish = TaskDeferred(
            trigger=trigger, method_name=REPLAY_METHOD, kwargs={HISTORY: [*history, [what]]}, timeout=timeout
        )
        self._is_deferred = True
        raise wish

    @contextmanager
    def inside(self, what: str) -> Iterator[None]:
        """While this step runs, nothing can be waited for."""
        self._inside = what
        try:
            yield
        finally:
            self._inside = None

    def _check_place(self, what: str) -> None:
        if self._broken is not None:
            raise self._broken
        if self._is_deferred:
            self._finish()
        if self._inside is not None:
            raise AirflowException(f"{what} stands inside {self._inside}; wait before or after the step, not in it.")
        if self._home != (threading.get_ident(), _async_task()):
            raise AirflowException(
                f"{what} must be awaited by the task's function itself: not in a thread, in asyncio.gather() or in "
                "another asyncio task. Use any_of() or all_of() to wait for several things at once."
            )

    def _mismatch(self, met: str) -> AirflowException:
        expected = self._steps[self._place].what
        self._broken = ReplayMismatch(
            f"The function did not do the same again: where it had come to {expected} before (wait or step "
            f"{self._place + 1} of {self._known}), {met} now. After a wait it runs again from its beginning and must "
            "meet the same waits and steps in the same order; put what may change (time, random numbers, what others "
            "changed meanwhile) into keep()."
        )
        return self._broken

    def _check_size(self, history: list[list[Any]]) -> None:
        sizes = {place: len(msgspec.json.encode(serde.encode(step))) for place, step in enumerate(history)}
        if sum(sizes.values()) > LARGEST_HISTORY:
            largest = max(sizes, key=sizes.__getitem__)
            raise AirflowException(
                f"What the function has kept takes {sum(sizes.values()):,} bytes, more than {LARGEST_HISTORY:,}; the "
                f"largest part is {history[largest][0]} with {sizes[largest]:,}. Keep where the data is, not the data."
            )


_replays: list[Replay] = []


def current_replay(what: str) -> Replay:
    """The call that is under way; an error where no function of a task runs."""
    if not _replays:
        raise RuntimeError(
            f"{what} works only while the function of a @task or a PythonOperator runs; operators use self.defer()."
        )
    return _replays[-1]


@contextmanager
def _active(replay: Replay) -> Iterator[None]:
    _replays.append(replay)
    try:
        yield
    finally:
        _replays.remove(replay)


def _async_task() -> Any:
    asyncio = sys.modules.get("asyncio")
    try:
        return asyncio.current_task() if asyncio is not None else None
    except RuntimeError:
        return None


# --- errors of steps -------------------------------------------------------------------------------------------------


def error_kept(error: Exception) -> dict[str, Any]:
    """An error as it can be kept: its class, what it was made from if that can travel, and its words."""
    kind = type(error)
    try:
        args = serde.encode(list(error.args))
    except Exception:  # noqa: BLE001 - its words have to do then
        args = None
    return {"class": f"{kind.__module__}:{kind.__qualname__}", "args": args, "text": str(error)}


def error_again(kept: Mapping[str, Any]) -> Exception:
    """The same error, or an `AirflowException` with its words if it cannot be made again."""
    module, _, path = kept["class"].partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
        error = found(*serde.decode(kept["args"]))
    except Exception:  # noqa: BLE001 - whatever its constructor wants, it is not the author's fault
        error = None
    return error if isinstance(error, Exception) else AirflowException(f"{path}: {kept['text']}")
