"""`stannel triggers`: what deferred tasks wait for, and what watches for assets."""

from typing import TYPE_CHECKING, Any

import click

from stannel.cli.base import Group, Refused, Session, pass_session, say
from stannel.cli.output import output_option, show_one, show_rows
from stannel.cli.tasks import follow_log, form_option, print_lines, print_log
from stannel.cli.values import find_run

if TYPE_CHECKING:
    from stannel.cli.waits import Triggerers
    from stannel.model.run import Run, TaskInstance
    from stannel.store.trigger_records import TriggerRecord, WatchRecord

COLUMNS = ("id", "dag_id", "task", "trigger", "state", "since", "waits_for", "owner")
_STATES = ("waiting", "ended", "killed", "killing")
_UNMAPPED = -1


@click.group("triggers", cls=Group)
def command() -> None:
    """List, show and cancel what deferred tasks wait for; list and show what watches for assets.

    A trigger is there while its task waits: once it has fired it is gone. One that watches for assets is there while
    some DAG waits for them. The arguments of triggers may be secrets; they are encrypted in the database, never shown.

    \b
    Examples:
      stannel triggers list                        what is waited for, and whether somebody works for it
      stannel triggers list --dag my_dag
      stannel triggers logs 12 --follow            what its task and the trigger itself wrote
      stannel triggers cancel 12                   end the wait; the task fails
    """


@command.command("list")
@click.option("--dag", "dag_id", metavar="DAG", help="Only those of this DAG.")
@click.option("--state", type=click.Choice(_STATES), help="Only those in this state.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Show no more than this.")
@output_option
@pass_session
def list_(session: Session, dag_id: str | None, state: str | None, limit: int, form: str) -> None:
    """List triggers in the order in which they began, with what each waits for."""
    from stannel.model.states import TriggerState

    if dag_id is not None:
        session.store.dags.get(dag_id)
    wanted = TriggerState(state) if state else None
    found = session.store.triggers.all(dag_id=dag_id, state=wanted, limit=limit + 1)
    triggerers = _triggerers(session)
    rows = [_row(one, triggerers) for one in found[:limit]]
    show_rows(rows, form, columns=COLUMNS, empty="No task waits for a trigger, and none watches for an asset.")
    if len(found) > limit:
        say(f"There are more than {limit}; --limit shows more of them.")


@command.command()
@click.argument("trigger_id", metavar="ID", type=int)
@output_option
@pass_session
def show(session: Session, trigger_id: int, form: str) -> None:
    """Show everything about a trigger but its arguments, which may be secrets."""
    show_one(_row(_find(session, trigger_id), _triggerers(session)), form)


@command.command()
@click.argument("trigger_id", metavar="ID", type=int)
@click.option("--follow", "-f", is_flag=True, help="Go on printing until its task ends.")
@form_option
@pass_session
def logs(session: Session, trigger_id: int, follow: bool, form: str) -> None:
    """Print the log of the task that waits: its own lines and those of the trigger, in one order.

    A trigger that watches for assets has a log of its own.
    """
    one = _find(session, trigger_id)
    if one.watch is not None:
        _watcher_log(session, one.id, one.watch, form, follow=follow)
        return
    run, instance = _waiter(session, one)
    if follow:
        follow_log(session, run, instance, one.try_number, form)
    else:
        print_log(session, run, instance, one.try_number, form)


@command.command()
@click.argument("trigger_ids", metavar="ID...", type=int, nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@pass_session
def cancel(session: Session, trigger_ids: tuple[int, ...], yes: bool) -> None:
    """End waits: their tasks fail without another try, and the triggers' `on_kill` runs.

    To end a wait with another verdict use `stannel tasks state --set`; to begin it again, `stannel tasks clear`.
    """
    found = [_find(session, trigger_id) for trigger_id in dict.fromkeys(trigger_ids)]
    for one in found:
        if one.watch is not None:
            raise Refused(
                f"Trigger {one.id} watches for the asset {one.watch.asset!r} and no task waits for it. Pause the DAGs "
                "that are scheduled on the asset, or take the watcher out of their files."
            )
    if not yes:
        for one in found:
            say(f"  {one.id}: {_task(one)} in run {one.run_id!r} of {one.dag_id!r}")
        these = "this wait; its task fails" if len(found) == 1 else f"these {len(found)} waits; their tasks fail"
        click.confirm(f"Cancel {these} without another try?", abort=True, err=True)
    for one in found:
        say(_cancel(session, one))


def _cancel(session: Session, one: "TriggerRecord") -> str:
    from stannel.errors import UnknownId

    try:
        was_waiting = session.store.triggers.cancel(one.id, now=session.now())
    except UnknownId:
        was_waiting = False
    if not was_waiting:
        return f"Nothing waited for trigger {one.id} any more; nothing was changed."
    if one.due_at is not None:
        then = "it waited for a moment only, so there is nothing to kill"
    else:
        trouble = _triggerers(session).trouble(one)
        then = f"its on_kill has to wait: {trouble}" if trouble else "its on_kill runs now"
    return f"Trigger {one.id} is cancelled: {_task(one)!r} in run {one.run_id!r} failed; {then}."


def _find(session: Session, trigger_id: int) -> "TriggerRecord":
    from stannel.errors import UnknownId

    try:
        return session.store.triggers.get(trigger_id)
    except UnknownId as error:
        raise Refused(
            f"There is no trigger {trigger_id}; one that has fired or was cancelled is gone. "
            "stannel triggers list shows those that wait."
        ) from error


def _watcher_log(session: Session, trigger_id: int, watch: "WatchRecord", form: str, *, follow: bool) -> None:
    from stannel.cli import logs as files
    from stannel.errors import UnknownId
    from stannel.supervisor.tasklog import watcher_log_path

    path = watcher_log_path(session.settings.logging.base_log_folder, watch.asset, watch.name)
    if not follow and not path.exists():
        raise Refused(f"There is no log at {path}; the watcher wrote none, or runs on another machine.")

    def is_over() -> bool:
        try:
            session.store.triggers.get(trigger_id)
        except UnknownId:
            return True
        return False

    if not follow:
        print_lines(files.read_lines(path), form)
        return
    for line in files.follow(path, is_over):
        print_lines([line], form)


def _waiter(session: Session, one: "TriggerRecord") -> "tuple[Run, TaskInstance]":
    run = find_run(session, one.dag_id, one.run_id)
    for instance in session.store.tasks.of_run(run):
        if (instance.task_id, instance.map_index) == (one.task_id, one.map_index):
            return run, instance
    raise Refused(f"The task of trigger {one.id} is not in run {one.run_id!r} any more; its log cannot be found.")


def _triggerers(session: Session) -> "Triggerers":
    from stannel.cli.waits import Triggerers

    return Triggerers(session.store.leases.all(), session.now())


def _task(one: "TriggerRecord") -> str:
    if one.watch is not None:
        return f"{one.watch.name} of asset {one.watch.asset}"
    return one.task_id if one.map_index == _UNMAPPED else f"{one.task_id}[{one.map_index}]"


def _row(one: "TriggerRecord", triggerers: "Triggerers") -> dict[str, Any]:
    from stannel.cli.waits import class_name

    return {
        "id": one.id,
        "dag_id": one.dag_id or None,
        "run_id": one.run_id or None,
        "task": _task(one),
        "task_id": one.task_id or None,
        "map_index": None if one.watch else one.map_index,
        "try_number": one.try_number or None,
        "trigger": class_name(one.classpath),
        "classpath": one.classpath,
        "state": str(one.state),
        "since": one.created_at,
        "waits_for": triggerers.waits_for(one),
        "due_at": one.due_at,
        "deadline_at": one.deadline_at,
        "queue": one.queue,
        "priority": one.priority,
        "owner": one.owner,
        "claimed_at": one.claimed_at,
        "watch": None if one.watch is None else _watch_row(one.watch),
    }


def _watch_row(watch: "WatchRecord") -> dict[str, Any]:
    return {
        "asset": watch.asset,
        "name": watch.name,
        "stream": watch.stream_key,
        "events": watch.events,
        "last_event_at": watch.last_event_at,
        "failures": watch.attempts,
        "next_at": watch.next_at,
        "last_error": watch.last_error,
        "trouble": watch.trouble,
    }
