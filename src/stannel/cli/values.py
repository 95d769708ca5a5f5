"""What people type on the command line, as types: moments, JSON objects, and which run they mean."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stannel.cli.base import Refused, Session

if TYPE_CHECKING:
    from stannel.model.run import Run
    from stannel.store.store import Store

# So many of a DAG's newest runs are searched for a logical date.
_SEARCHED = 10_000


class Moment(click.ParamType[datetime]):
    """A date or a date and time, as ISO 8601; without a zone it is one of [core] default_timezone."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        found = parse_moment(str(value), ctx.find_object(Session) if ctx else None)
        if found is None:
            self.fail(f"{value!r} is no date; write it as 2026-11-15 or 2026-11-15T06:30:00+01:00.", param, ctx)
        return found


def parse_moment(text: str, session: Session | None) -> datetime | None:
    """None: the text is no moment."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    if found.tzinfo is None:
        found = found.replace(tzinfo=session.settings.core.default_timezone if session else UTC)
    return found.astimezone(UTC)


class JsonObject(click.ParamType[dict[str, Any]]):
    """A JSON object, or `@file` that holds one."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        import msgspec

        if isinstance(value, dict):
            return value
        text = _text(self, str(value), param, ctx)
        try:
            found: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.ValidationError:
            self.fail(f'{_short(text)} is no JSON object; write it as {{"key": "value"}}.', param, ctx)
        except msgspec.DecodeError as error:
            self.fail(f"{_short(text)} is no JSON: {error}", param, ctx)
        return found


def _text(kind: JsonObject, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        kind.fail(f"{value[1:]} cannot be read: {getattr(error, 'strerror', None) or error}", param, ctx)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


MOMENT = Moment()
JSON_OBJECT = JsonObject()


def find_run(session: Session, dag_id: str, given: str | None) -> "Run":
    """The run people mean by a run id, by a logical date, or by saying nothing (or `latest`): the newest one."""
    store = session.store
    store.dags.get(dag_id)
    if given is None or given == "latest":
        newest = store.runs.latest(dag_id=dag_id, limit=1)
        if not newest:
            raise Refused(f"The DAG {dag_id!r} has no runs yet; start one with: stannel dags trigger {dag_id}.")
        return newest[0]
    logical_date = parse_moment(given, session)
    if logical_date is not None and (found := _run_of(store, dag_id, logical_date)) is not None:
        return found
    return store.runs.get(dag_id, given)


def _run_of(store: "Store", dag_id: str, logical_date: datetime) -> "Run | None":
    runs = store.runs.latest(dag_id=dag_id, limit=_SEARCHED)
    return next((run for run in runs if run.logical_date == logical_date), None)
