"""Watches a run to its end: a live picture in a terminal, a line for each task that ended anywhere else."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stannel.cli.base import Session, say
from stannel.cli.output import STYLES, console, duration
from stannel.cli.tasks import label
from stannel.cli.waiting import Waiting
from stannel.model.run import Run, TaskInstance
from stannel.model.states import FAILURES, RUN_ENDS, TASK_ENDS, RunState, TaskState
from stannel.settings import Settings
from stannel.store.signals import wait
from stannel.store.store import Store

# A wake-up tells of changes; this often the run is looked at in case one got lost, and no more often than the other.
_NET_SECONDS = 1.0
_MOST_OFTEN_SECONDS = 0.05
# A run that shows no sign of life for so long gets an explanation.
_PATIENCE_SECONDS = 1.5
_NAMES_SHOWN = 6

Picture = tuple[Run, list[TaskInstance]]
Beside = Callable[[Run, list[TaskInstance], Console], None]


def watch_run(session: Session, run: Run, *, timeout: float | None = None) -> Run:
    """Show a run until it ends or the time is up; the run as it was then."""
    return Watching(session.store, session.settings).watch(run, timeout=timeout)


class Watching:
    """Shows runs of one store. `beside` is called at each look, with what prints above the picture."""

    def __init__(self, store: Store, settings: Settings, *, beside: Beside | None = None) -> None:
        self._store, self._settings, self._beside = store, settings, beside

    def watch(self, run: Run, *, timeout: float | None = None) -> Run:
        """Show a run until it ends or the time is up; the run as it was then."""
        out = console(err=True)
        view = _Live(out) if out.is_terminal else _Lines(out)
        explain = _Explain(self._store, self._settings)
        with view.shown():
            for current, instances in _pictures(self._store, run, timeout):
                if self._beside is not None:
                    self._beside(current, instances, view.above)
                view.update(current, instances, explain(current, instances))
                run = current
        view.finish(run)
        return run


def _pictures(store: Store, run: Run, timeout: float | None) -> Iterator[Picture]:
    """The run whenever it may have changed; the last one is how it ended, or how it was when the time was up."""
    began = time.monotonic()
    listener = store.listen("scheduler")
    try:
        while True:
            run = store.runs.get(run.dag_id, run.run_id)
            yield run, store.tasks.of_run(run)
            left = _NET_SECONDS if timeout is None else began + timeout - time.monotonic()
            if run.state in RUN_ENDS or left <= 0:
                return
            time.sleep(_MOST_OFTEN_SECONDS)
            wait(listener, min(left, _NET_SECONDS))
    finally:
        listener.close()


class _Explain:
    """Says why nothing moves, once nothing has moved for a while."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._seen: object = None
        self._since = time.monotonic()

    def __call__(self, run: Run, instances: list[TaskInstance]) -> str | None:
        seen = (run.state, Counter(one.state for one in instances))
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
            return None
        if time.monotonic() - self._since < _PATIENCE_SECONDS or run.state in RUN_ENDS:
            return None
        if any(one.state is TaskState.RUNNING for one in instances):
            return None
        waiting = Waiting(self._store, self._settings, run, datetime.now(UTC))
        whole = waiting.run()
        if whole is not None:
            return whole
        waits = (one for one in instances if one.state not in TASK_ENDS and one.state is not TaskState.NONE)
        return next((f"{label(one)}: {why}" for one in waits if (why := waiting.task(one))), None)


class _View:
    """One way to show a run."""

    def __init__(self, out: Console) -> None:
        self.out = out
        # What is printed here stays on the screen, above whatever moves.
        self.above = out

    def shown(self) -> "Live | _Nothing":
        raise NotImplementedError

    def update(self, run: Run, instances: list[TaskInstance], why: str | None) -> None:
        raise NotImplementedError

    def finish(self, run: Run) -> None:
        """The last word: how it ended and how long it took."""
        if run.state not in RUN_ENDS:
            say(f"The run {run.run_id!r} is still {run.state}; it goes on without being watched.")
            return
        seconds = (run.end_date - run.start_date).total_seconds() if run.end_date and run.start_date else None
        verdict = "succeeded" if run.state is RunState.SUCCESS else "failed"
        took = f" in {duration(seconds)}" if seconds is not None else ""
        because = f": {run.note}" if run.note and run.state is RunState.FAILED else "."
        self.out.print(Text(f"The run {run.run_id!r} {verdict}{took}{because}", style=STYLES[run.state]))


class _Nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


class _Lines(_View):
    """For pipes and files: what changed, line by line."""

    def __init__(self, out: Console) -> None:
        super().__init__(out)
        self.above = console()
        self._told: dict[int, TaskState] = {}
        self._why: str | None = None

    def shown(self) -> _Nothing:
        return _Nothing()

    def update(self, run: Run, instances: list[TaskInstance], why: str | None) -> None:
        for one in instances:
            if self._told.get(one.pk) is not one.state and _is_news(run, one):
                self._told[one.pk] = one.state
                note = f" ({one.note})" if one.note else ""
                say(f"{label(one)}: {one.state}{note}")
        if why is not None and why != self._why:
            say(f"waiting: {why}")
        self._why = why


def _is_news(run: Run, one: TaskInstance) -> bool:
    """Whether a line is due; what had ended before the run started is old."""
    if one.state in TASK_ENDS:
        return run.start_date is not None and one.end_date is not None and one.end_date >= run.start_date
    return one.state in (TaskState.RUNNING, TaskState.UP_FOR_RETRY, TaskState.DEFERRED)


class _Live(_View):
    """For terminals: a bar, who runs, who failed, and what is waited for."""

    def __init__(self, out: Console) -> None:
        super().__init__(out)
        self._live = Live(console=out, refresh_per_second=8, transient=True)

    def shown(self) -> Live:
        return self._live

    def update(self, run: Run, instances: list[TaskInstance], why: str | None) -> None:
        self._live.update(picture(run, instances, why))


def picture(run: Run, instances: list[TaskInstance], why: str | None) -> Group:
    """A run on a few lines."""
    done = sum(one.state in TASK_ENDS for one in instances)
    head = Table.grid(padding=(0, 1))
    bar = ProgressBar(
        total=max(len(instances), 1), completed=done, width=30, complete_style="green", finished_style="green"
    )
    head.add_row(
        Text(run.dag_id, style="bold"), Text(str(run.state), style=STYLES[run.state]), bar, f"{done}/{len(instances)}"
    )
    lines: list[Table | Text] = [head]
    _add(lines, "running", instances, lambda one: one.state is TaskState.RUNNING)
    _add(lines, "deferred", instances, lambda one: one.state is TaskState.DEFERRED)
    _add(lines, "up_for_retry", instances, lambda one: one.state is TaskState.UP_FOR_RETRY)
    _add(lines, "failed", instances, lambda one: one.state in FAILURES)
    if why is not None:
        lines.append(Text(f"  waiting: {why}", style="yellow"))
    return Group(*lines)


def _add(
    lines: list[Table | Text], title: str, instances: list[TaskInstance], fits: Callable[[TaskInstance], bool]
) -> None:
    names = [label(one) for one in instances if fits(one)]
    if names:
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        text = f"  {title.replace('_', ' ')}: {', '.join(names[:_NAMES_SHOWN])}{more}"
        lines.append(Text(text, style=STYLES[title]))
