"""`ResumableJobMixin`: operators whose work lives elsewhere find it again, whoever died meanwhile."""

from abc import abstractmethod
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

from stannel.model.resume import Done, Patience, Poll
from stannel.sdk.resumable_work import ResumableWork, not_awaitable


class ResumableJobMixin:
    """Mix it into an operator, implement the six methods, and call `execute_resumable(context)` from `execute`."""

    external_id_key: str = "remote_job_id"
    # Consent to a second job when nobody can tell what became of the first.
    resubmit_on_unknown: bool = False
    # A status that cannot be had is asked for again after these many seconds each, before the try fails.
    status_retry_delays: tuple[float, ...] = Patience().delays
    # Taken by the constructor of every operator this is mixed into, whichever base comes first.
    mixin_arguments: ClassVar[tuple[str, ...]] = ("durable",)
    durable: bool = True
    # Names this submission to the other system. It is stored before `submit_job` is called, and stays the same
    # until a job is known to have failed.
    submission_token: str | None = None

    def __init__(self, *, durable: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.durable = durable

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # As ABCMeta would do it, which operators do not have: a class that lacks one of the six makes no tasks.
        _note_missing(cls)

    # --- the six methods of an author ---------------------------------------------------------------------------------

    @abstractmethod
    def submit_job(self, context: Any) -> Any:
        """Submit the job and return its id, any JSON value. None: it has none, and every try submits anew."""

    @abstractmethod
    def get_job_status(self, external_id: Any, context: Any) -> str:
        """The job's status in the words of the other system."""

    @abstractmethod
    def is_job_active(self, status: str) -> bool:
        """Whether a job of this status still runs, or will."""

    @abstractmethod
    def is_job_succeeded(self, status: str) -> bool:
        """Whether a job of this status has succeeded."""

    @abstractmethod
    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        """Return when the job has succeeded; raise when it has failed."""

    @abstractmethod
    def get_job_result(self, external_id: Any, context: Any) -> Any:
        """What the task returns once the job has succeeded."""

    # --- two more that close gaps -------------------------------------------------------------------------------------

    def is_job_failed(self, status: str) -> bool:
        """Whether a job of this status has failed for good. Without it, whatever neither runs nor succeeded has."""
        return True

    # An author may add `find_job(self, token, context)`: the id of the job that was submitted with this token, or
    # None if there is none. It finds a job whose submitter died before the id was stored.

    # --- three callers of one decision --------------------------------------------------------------------------------

    def execute_resumable(self, context: Any) -> Any:
        """Submit the job, or take up the one an earlier try submitted; its result."""
        work = ResumableWork(self, context)
        with work.watched():
            while not isinstance(step := work.next(), Done):
                work.learn(step, not_awaitable(step, work.do(step)))
        return step.result

    async def aexecute_resumable(self, context: Any) -> Any:
        """The same for methods that are `async def`, all or some of them."""
        work = ResumableWork(self, context)
        with work.watched():
            while not isinstance(step := work.next(), Done):
                work.learn(step, await work.ado(step))
        return step.result

    def defer_resumable(
        self,
        context: Any,
        *,
        trigger: Callable[[Any], Any],
        method_name: str | None,
        kwargs: dict[str, Any] | None = None,
        timeout: timedelta | float | None = None,
    ) -> Any:
        """The same, but the waiting is left to `trigger(external_id)`; the task goes on at `method_name`.

        Returns the result if the job has succeeded already. `method_name` is given `external_id` beside the event.
        """
        work = ResumableWork(self, context)
        with work.watched():
            while not isinstance(step := work.next(), Done | Poll):
                work.learn(step, not_awaitable(step, work.do(step)))
        if isinstance(step, Done):
            return step.result
        if method_name is not None:
            kwargs = {**(kwargs or {}), "external_id": step.external_id}
        defer: Any = self.defer  # type: ignore[attr-defined]
        return defer(trigger=trigger(step.external_id), method_name=method_name, kwargs=kwargs, timeout=timeout)


def _note_missing(cls: Any) -> None:
    missing = (name for name in dir(cls) if getattr(getattr(cls, name, None), "__isabstractmethod__", False))
    cls.__abstractmethods__ = frozenset(missing)


_note_missing(ResumableJobMixin)
