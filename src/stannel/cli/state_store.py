"""`stannel state-store`: what task instances and assets keep for themselves."""

import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stannel.cli.base import Group, Refused, Session, pass_session, say
from stannel.cli.output import output_option, show_one, show_rows
from stannel.cli.values import MOMENT, find_run
from stannel.errors import UnknownId, closest

if TYPE_CHECKING:
    from stannel.store.state_stores import Keeper, StoredState

Function = TypeVar("Function", bound=Callable[..., Any])

_COLUMNS = ("owner", "key", "value", "updated_at", "expires_at")


@click.group("state-store", cls=Group)
def command() -> None:
    """Look at what task instances and assets keep, and change it.

    \b
    Examples:
      stannel state-store list --dag my_dag
      stannel state-store get remote_job_id --dag my_dag --task submit
      stannel state-store set watermark '"2026-11-15"' --asset orders
      stannel state-store clean --dry-run
    """


def _owner_options(function: Function) -> Function:
    """Whose key is meant: a task instance's, or an asset's."""
    for option in (
        click.option("--asset", metavar="NAME", help="The asset whose key it is."),
        click.option("--map-index", type=click.IntRange(min=0), help="Which instance of a mapped task."),
        click.option("--run", metavar="RUN", help="In which run; otherwise the latest."),
        click.option("--task", "task_id", metavar="TASK", help="The task whose key it is."),
        click.option("--dag", "dag_id", metavar="DAG", help="The DAG of the task."),
    ):
        function = option(function)
    return function


@command.command("list")
@click.option("--dag", "dag_id", metavar="DAG", help="Only those of this DAG.")
@click.option("--run", "run", metavar="RUN", help="Only those of this run, or of the latest.")
@click.option("--task", "task_id", metavar="TASK", help="Only those of this task.")
@click.option("--asset", metavar="NAME", help="Only those of this asset.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Show no more than this.")
@output_option
@pass_session
def list_(
    session: Session, dag_id: str | None, run: str | None, task_id: str | None, asset: str | None, limit: int, form: str
) -> None:
    """List keys and their values; what has expired is not there any more."""
    _check_database(session)
    if asset is not None and (dag_id or run or task_id):
        raise click.UsageError("Give either --asset, or --dag with --run and --task.")
    if run is not None and dag_id is None:
        raise click.UsageError("--run needs --dag.")
    states, rows = session.store.state_stores, []
    if asset is None:
        run_id = find_run(session, dag_id, run).run_id if dag_id is not None and run is not None else None
        found = states.of_tasks(now=session.now(), dag_id=dag_id, run_id=run_id, task_id=task_id, limit=limit)
        rows += [_row(one) for one in found]
    if dag_id is None and task_id is None:
        rows += [_row(one) for one in states.of_assets(name=asset, limit=limit)]
    show_rows(rows[:limit], form, columns=_COLUMNS, empty="Nothing is kept.")


@command.command()
@click.argument("key")
@_owner_options
@output_option
@pass_session
def get(session: Session, /, key: str, form: str, **owner: Any) -> None:
    """Print the value of a key, as JSON."""
    import msgspec

    found = session.store.states.get(_keeper(session, **owner), key, now=session.now())
    if found is None:
        raise Refused(f"There is no key {key!r}; stannel state-store list shows those there are.")
    if form in ("json", "yaml"):
        show_one({"key": key, "value": msgspec.json.decode(found)}, form)
    else:
        click.echo(found)


@command.command("set")
@click.argument("key")
@click.argument("value")
@click.option("--expires", type=MOMENT, metavar="DATE", help="When it expires; otherwise as the settings say.")
@click.option("--forever", is_flag=True, help="It never expires.")
@_owner_options
@pass_session
def set_(session: Session, /, key: str, value: str, expires: datetime | None, forever: bool, **owner: Any) -> None:
    """Keep a JSON VALUE under KEY; `-` as VALUE reads it from standard input."""
    from stannel.model.state_store import Change, Put, StateRefused, check_key, check_size

    text = _json(sys.stdin.read() if value == "-" else value)
    keeper = _keeper(session, **owner)
    try:
        check_size(check_key(key), text, session.settings.state_store.max_value_storage_bytes)
    except (StateRefused, ValueError) as error:
        raise Refused(str(error)) from error
    days = session.settings.state_store.default_retention_days
    if expires is None and days and not forever and owner["asset"] is None:
        expires = session.now() + timedelta(days=days)
    session.store.states.change(keeper, Change(put={key: Put(text, expires)}), now=session.now())
    say(f"The key {key!r} is stored{f' until {expires.isoformat()}' if expires else ''}.")


@command.command()
@click.argument("key", required=False)
@click.option("--all", "every", is_flag=True, help="Delete every key of the task instance or asset.")
@_owner_options
@pass_session
def delete(session: Session, /, key: str | None, every: bool, **owner: Any) -> None:
    """Delete a key, or with --all every key, of a task instance or an asset."""
    from stannel.model.state_store import Change

    if (key is None) != every:
        raise click.UsageError("Give either a KEY or --all.")
    keeper, states = _keeper(session, **owner), session.store.states
    if key is None:
        states.clear(keeper)
        say("All its keys are deleted.")
        return
    if states.get(keeper, key, now=session.now()) is None:
        raise Refused(f"There is no key {key!r}; nothing was deleted.")
    states.change(keeper, Change(remove=(key,)), now=session.now())
    say(f"The key {key!r} is deleted.")


@command.command()
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
@pass_session
def clean(session: Session, dry_run: bool) -> None:
    """Delete keys that have expired. A scheduler does the same now and then."""
    backend = getattr(session.store.states, "backend", None)
    if backend is not None:
        if dry_run:
            raise Refused(f"{type(backend).__name__} keeps the state, and does not tell how much has expired.")
        backend.cleanup()
        say(f"{type(backend).__name__} was told to clean up.")
        return
    states, now = session.store.state_stores, session.now()
    if dry_run:
        say(f"{states.expired(now)} keys have expired; nothing was deleted.")
        return
    most = session.settings.state_store.state_cleanup_batch_size or 1000
    deleted = some = states.delete_expired(now, most)
    while some == most:
        some = states.delete_expired(now, most)
        deleted += some
    say(f"{deleted} expired keys deleted.")


def _check_database(session: Session) -> None:
    backend = getattr(session.store.states, "backend", None)
    if backend is not None:
        raise Refused(f"{type(backend).__name__} keeps the state, and cannot list it; ask for single keys.")


def _keeper(
    session: Session,
    *,
    dag_id: str | None,
    task_id: str | None,
    run: str | None,
    map_index: int | None,
    asset: str | None,
) -> "Keeper":
    from stannel.model.state_store import AssetScope, TaskScope
    from stannel.store.state_stores import AssetKeeper, TaskKeeper

    if asset is not None:
        if dag_id or task_id or run or map_index is not None:
            raise click.UsageError("Give either --asset, or --dag and --task.")
        found = session.store.assets.get(asset)
        return AssetKeeper(AssetScope(found.pk, found.name, found.uri), {"kind": "cli"})
    if dag_id is None or task_id is None:
        raise click.UsageError("Say whose key it is: --dag and --task, or --asset.")
    of_run = find_run(session, dag_id, run)
    instances = session.store.tasks.of_run(of_run)
    index = -1 if map_index is None else map_index
    if not any((one.task_id, one.map_index) == (task_id, index) for one in instances):
        names = {one.task_id for one in instances}
        given = task_id if map_index is None else f"{task_id}[{index}]"
        raise UnknownId(f"task instance of {of_run.run_id!r}", given, closest(task_id, names - {task_id}))
    return TaskKeeper(of_run.pk, TaskScope(dag_id, of_run.run_id, task_id, index))


def _json(text: str) -> str:
    import msgspec

    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise click.UsageError(
            f"The value is no JSON: {error}. A text is written with quotes: '\"like this\"'."
        ) from error
    if value is None:
        raise click.UsageError("null cannot be stored: it stands for a key that is not there.")
    return msgspec.json.encode(value).decode()


def _row(one: "StoredState") -> dict[str, Any]:
    from stannel.model.state_store import TaskScope

    scope = one.scope
    if isinstance(scope, TaskScope):
        index = "" if scope.map_index < 0 else f"[{scope.map_index}]"
        owner = f"{scope.dag_id} / {scope.run_id} / {scope.task_id}{index}"
    else:
        owner = f"asset {scope.name}"
    more = {} if one.writer is None else {"writer": one.writer}
    times = {"updated_at": one.updated_at, "expires_at": one.expires_at}
    return {"owner": owner, "key": one.key, "value": one.value, **times, **more}
