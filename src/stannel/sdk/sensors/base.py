"""`BaseSensorOperator`: a task that looks again and again until something is true."""

import importlib
import inspect
import time
import zlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, NoReturn, TypeVar

from stannel.errors import DagInvalid
from stannel.sdk import environment, timezone
from stannel.sdk.deferral import is_deferrable_by_default
from stannel.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    DownstreamTasksSkipped,
    TaskDeferralTimeout,
)
from stannel.sdk.operator import BaseOperator
from stannel.triggers.base import BaseTrigger

_MODES = ("poke", "reschedule")
_WEEK = "604800"
_LONGEST_WAIT = 100 * 365 * 86400.0
# Twice as long sixty times over is longer than anybody waits, and still a number.
_MOST_DOUBLINGS = 60


@dataclass(frozen=True)
class PokeReturnValue:
    """What a look found: whether the wait is over, and the value to leave as XCom then."""

    is_done: bool
    xcom_value: Any = None

    def __bool__(self) -> bool:
        return bool(self.is_done)


class SensorInvalid(DagInvalid, ValueError):
    """A sensor's arguments contradict each other or make no sense."""


def seconds_until_next_poke(
    number: int, interval: float, *, backoff: bool, jitter: float, longest: float | None, left: float
) -> float:
    """How long to wait after the `number`-th look, counted from 1; never longer than what is `left` of the timeout.

    With back-off it lies between the half and the whole of an interval that doubles each time; `jitter` (0 to 1) says
    where.
    """
    if backoff:
        half = interval * 2.0 ** min(number - 2, _MOST_DOUBLINGS)
        interval = half + half * jitter
        if longest is not None:
            interval = min(interval, longest)
    return max(0.0, min(interval, left))


def jitter_of(*who: Any) -> float:
    """A number from 0 to 1 that is always the same for the same arguments."""
    return zlib.crc32("#".join(map(str, who)).encode()) / 2**32


class BaseSensorOperator(BaseOperator):
    """Subclass it and implement `poke`: True, or a true `PokeReturnValue`, ends the wait.

    Between two looks, mode "poke" sleeps in its process; mode "reschedule" ends the process and frees its slots.
    """

    ui_color = "#e6f1f2"
    only_poke_mode: ClassVar[bool] = False

    def __init__(
        self,
        *,
        poke_interval: timedelta | float = 60,
        timeout: timedelta | float | None = None,
        soft_fail: bool = False,
        mode: str = "poke",
        exponential_backoff: bool = False,
        max_wait: timedelta | float | None = None,
        silent_fail: bool = False,
        never_fail: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if soft_fail and never_fail:
            raise self._wrong("soft_fail and never_fail are both given, but one of them is enough")
        self.soft_fail, self.silent_fail, self.never_fail = soft_fail, silent_fail, never_fail
        self.poke_interval = self._seconds("poke_interval", poke_interval)
        if timeout is None:
            timeout = float(environment.setting("SENSORS__DEFAULT_TIMEOUT", _WEEK))
        self.timeout = self._seconds("timeout", timeout)
        self.exponential_backoff = exponential_backoff
        self.max_wait = None if max_wait is None else timedelta(seconds=self._seconds("max_wait", max_wait))
        self.mode = mode

    @property
    def mode(self) -> str:
        """What happens between two looks: "poke" or "reschedule"."""
        return self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        if mode not in _MODES:
            raise self._wrong(f"mode is {mode!r}, which is neither 'poke' nor 'reschedule'")
        if self.only_poke_mode and mode != "poke":
            raise self._wrong(f"{type(self).__name__} works in mode 'poke' only, but mode is {mode!r}")
        self._mode = mode

    @property
    def reschedule(self) -> bool:
        return self.mode == "reschedule"

    def _seconds(self, name: str, value: Any) -> float:
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
            raise self._wrong(f"{name} must be a timedelta or a number of seconds, at least 0, not {value!r}")
        return seconds

    def _wrong(self, reason: str) -> SensorInvalid:
        plain = self.invalid(reason)
        return SensorInvalid(plain.dag_id, plain.file, plain.reason)

    # --- in the task process ---------------------------------------------------------------------------------------

    def poke(self, context: Any) -> bool | PokeReturnValue:
        """Look once. False: not yet. May be `async def`."""
        raise NotImplementedError(f"{type(self).__name__} has no poke() method")

    def execute(self, context: Any) -> Any:
        try:
            return self._wait(context)
        except AirflowTaskTimeout as error:
            if self._is_soft:
                raise _skipped(error) from error
            raise

    def _wait(self, context: Any) -> Any:
        return self._look_until_done(context)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        """Go on after a wait. One that took too long is this sensor's timeout; a soft sensor is skipped, not failed."""
        try:
            result = super().resume_execution(next_method, next_kwargs, context)
        except (AirflowException, AirflowTaskTimeout) as error:
            self._raise_softened(error)
        return self._later(result) if inspect.isawaitable(result) else result

    async def _later(self, result: Any) -> Any:
        try:
            return await result
        except (AirflowException, AirflowTaskTimeout) as error:
            self._raise_softened(error)

    def _raise_softened(self, error: BaseException) -> NoReturn:
        if isinstance(error, AirflowSkipException | AirflowRescheduleException | DownstreamTasksSkipped):
            raise error
        if self._is_soft:
            raise _skipped(error) from error
        if isinstance(error, TaskDeferralTimeout):
            words = f"Sensor has timed out; it waited as long as its timeout of {self.timeout:g} s allows."
            raise AirflowSensorTimeout(words) from error
        raise error

    def timeout_left(self, context: Any) -> timedelta:
        """What is left of this sensor's timeout, which counts from the first start of the try."""
        ti = context["ti"]
        left = self.timeout - (ti.start_date - ti.first_start_date).total_seconds()
        if left <= 0:
            raise self._timed_out(self.timeout - left)
        # No moment is so far away that nobody could write it down.
        return timedelta(seconds=min(left, _LONGEST_WAIT))

    def _look_until_done(self, context: Any) -> Any:
        ti = context.get("ti")
        looks = ti.task_reschedule_count if ti is not None else 0
        # In another process of the same try the wait goes on where it was, timed from the first start.
        waited = (ti.start_date - ti.first_start_date).total_seconds() if ti is not None else 0.0
        began = time.monotonic() - waited
        while not (answer := self._look(context)):
            looks += 1
            elapsed = time.monotonic() - began
            if elapsed > self.timeout:
                raise self._timed_out(elapsed)
            pause = self._pause(ti, looks, left=self.timeout - elapsed)
            if self.reschedule:
                raise AirflowRescheduleException(timezone.utcnow() + timedelta(seconds=pause))
            time.sleep(pause)
        self.log.info("The wait is over")
        return answer.xcom_value if isinstance(answer, PokeReturnValue) else None

    def _pause(self, ti: Any, looks: int, left: float) -> float:
        who = (ti.dag_id, ti.task_id, ti.run_id, ti.map_index) if ti is not None else ()
        return seconds_until_next_poke(
            looks,
            self.poke_interval,
            backoff=self.exponential_backoff,
            jitter=jitter_of(*who, looks),
            longest=None if self.max_wait is None else self.max_wait.total_seconds(),
            left=left,
        )

    def _look(self, context: Any) -> Any:
        try:
            answer: Any = self.poke(context)
            return _awaited(answer) if inspect.isawaitable(answer) else answer
        except (AirflowSkipException, AirflowRescheduleException):
            raise
        except (AirflowSensorTimeout, AirflowFailException) as error:
            if self._is_soft:
                raise _skipped(error) from error
            raise
        except Exception as error:
            if self.silent_fail:
                self.log.exception("This look failed and counts as not yet, because silent_fail is set")
                return False
            if self.never_fail:
                raise _skipped(error) from error
            raise

    @property
    def _is_soft(self) -> bool:
        return self.soft_fail or self.never_fail

    def _timed_out(self, elapsed: float) -> Exception:
        words = f"Sensor has timed out; it waited {elapsed:.1f} s, longer than its timeout of {self.timeout:g} s."
        return AirflowSkipException(words) if self.soft_fail else AirflowSensorTimeout(words)


def _skipped(error: BaseException) -> AirflowSkipException:
    return AirflowSkipException(f"The sensor is skipped instead of failed: {type(error).__name__}: {error}")


class DeferrableSensor(BaseSensorOperator):
    """A sensor that, if `deferrable`, looks once and then leaves the wait to a trigger; it has no process meanwhile."""

    # The module of `stannel.triggers` that deferring needs, so that it can be loaded before processes are forked.
    trigger_module: ClassVar[str]

    def __init__(self, *, deferrable: bool | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deferrable = is_deferrable_by_default() if deferrable is None else deferrable

    def trigger_for(self, context: Any) -> BaseTrigger:
        """What waits in this sensor's place."""
        raise NotImplementedError(f"{type(self).__name__} has no trigger_for() method")

    def _wait(self, context: Any) -> Any:
        if not self.deferrable:
            return super()._wait(context)
        if not self._look(context):
            timeout = self.timeout_left(context)
            self.defer(trigger=self.trigger_for(context), method_name="execute_complete", timeout=timeout)
        return None

    def execute_complete(self, context: Any, event: Any = None) -> Any:
        """The wait is over."""


Sensor = TypeVar("Sensor", bound=type[BaseSensorOperator])


def poke_mode_only(sensor_class: Sensor) -> Sensor:
    """Mark a sensor class that keeps something in memory between looks: it refuses any mode but "poke"."""
    if not issubclass(sensor_class, BaseSensorOperator):
        raise ValueError(f"poke_mode_only is for classes derived from BaseSensorOperator, not for {sensor_class!r}")
    sensor_class.only_poke_mode = True
    return sensor_class


def _awaited(answer: Any) -> Any:
    async def wait() -> Any:
        return await answer

    # Loaded on first use: with what it brings along it makes every fork of every task a fifth dearer.
    return importlib.import_module("asyncio").run(wait())
