"""Notices what is worth a line on the screen: runs that ended, files that broke or were repaired, lost workers."""

from stannel.cli.output import duration
from stannel.errors import StannelError
from stannel.model.run import Run
from stannel.model.states import RUN_ENDS, RunState
from stannel.store.store import Store

_RUNS_SEEN = 200
_MOST_LINES = 5


class News:
    """Compares the store with how it was at the last look."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._living: set[int] = set()
        self._newest: int | None = None
        self._errors: dict[str, str] = {}
        self._dags: set[str] | None = None
        self._is_away = False
        self.look()

    @property
    def dag_count(self) -> int:
        return len(self._dags or ())

    @property
    def error_count(self) -> int:
        return len(self._errors)

    def look(self) -> list[str]:
        """A line for everything that happened since the last look."""
        return [*self._runs(), *self._files()]

    def look_again(self) -> list[str]:
        """Like `look`, for whoever goes on without the store: that it is away is told once, and so is its return."""
        try:
            lines = self.look()
        except StannelError as error:
            was_away, self._is_away = self._is_away, True
            return [] if was_away else [f"The database is away: {str(error).rstrip('.')}; trying again"]
        was_away, self._is_away = self._is_away, False
        return ["The database is back", *lines] if was_away else lines

    def _runs(self) -> list[str]:
        runs = self._store.runs.latest(limit=_RUNS_SEEN)
        ended = [run for run in reversed(runs) if run.state in RUN_ENDS and self._is_news(run)]
        self._living = {run.pk for run in runs if run.state not in RUN_ENDS}
        self._newest = max([self._newest or 0, *(run.pk for run in runs)])
        lines = [_line(run) for run in ended]
        if len(lines) > _MOST_LINES:
            failed = sum(run.state is RunState.FAILED for run in ended)
            lines = [f"{len(ended)} runs ended, {failed} of them failed", *lines[-1:]]
        return lines

    def _is_news(self, run: Run) -> bool:
        return run.pk in self._living or (self._newest is not None and run.pk > self._newest)

    def _files(self) -> list[str]:
        dags = {status.dag_id for status in self._store.dags.all()}
        errors = {file.path: file.error for file in self._store.dags.files() if file.error}
        lines = [f"import error in {path}: {_last_line(error)}" for path, error in errors.items()
                 if self._errors.get(path) != error]  # fmt: skip
        lines += [f"import error in {path} is gone" for path in sorted(self._errors.keys() - errors.keys())]
        if self._dags is not None:
            lines += [f"new DAG {dag_id}" for dag_id in sorted(dags - self._dags)]
            lines += [f"DAG {dag_id} is gone" for dag_id in sorted(self._dags - dags)]
        self._dags, self._errors = dags, errors
        if len(lines) > _MOST_LINES:
            return [*lines[:_MOST_LINES], f"... and {len(lines) - _MOST_LINES} more changes in DAG files"]
        return lines


def _line(run: Run) -> str:
    seconds = (run.end_date - run.start_date).total_seconds() if run.end_date and run.start_date else None
    took = f" in {duration(seconds)}" if seconds is not None else ""
    why = f": {run.note}" if run.note and run.state is RunState.FAILED else ""
    return f"{run.dag_id} {run.run_id} {run.state}{took}{why}"


def _last_line(error: str) -> str:
    return error.strip().rpartition("\n")[2]
