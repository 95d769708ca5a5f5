"""`stannel db`: looking after the database."""

from datetime import datetime

import click

from stannel.cli.base import Group, Session, pass_session, say
from stannel.cli.output import console, output_option, show_rows
from stannel.cli.values import MOMENT


@click.group("db", cls=Group)
def command() -> None:
    """Upgrade, check and clean the database.

    \b
    Examples:
      stannel db upgrade
      stannel db check
      stannel db clean --before 2026-01-01 --dry-run
    """


@command.command()
@pass_session
def upgrade(session: Session) -> None:
    """Create the database, or bring it to the version this Stannel needs."""
    from stannel.errors import address_without_password
    from stannel.store.opening import open_store, version_of

    store = open_store(session.settings, upgrade=True)
    try:
        say(f"The database {address_without_password(store.address)} has version {version_of(store.database)}.")
    finally:
        store.close()


@command.command()
@output_option
@click.pass_context
def check(context: click.Context, form: str) -> None:
    """Look for contradictions in the database; exit code 1 when there are any."""
    store = context.ensure_object(Session).store
    rows = [{"what": found.what, "count": found.count} for found in store.upkeep.check()]
    show_rows(rows, form, columns=("what", "count"), empty="All is well: nothing in the database contradicts itself.")
    if rows:
        context.exit(1)


@command.command()
@click.option("--before", type=MOMENT, required=True, metavar="DATE", help="Delete runs that ended before this.")
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@pass_session
def clean(session: Session, before: datetime, dry_run: bool, yes: bool) -> None:
    """Delete runs that ended before a date with all that is theirs, and old asset events nobody needs; logs stay."""
    count, events = session.store.upkeep.old_runs(before), session.store.upkeep.old_events(before)
    also = f", and {events} asset events from before then are not needed" if events else ""
    found = f"{count} runs ended before {before.isoformat()}{also}"
    if dry_run or not (count or events):
        say(f"{found}; nothing was deleted.")
        return
    if not yes:
        click.confirm(f"{found}. Delete them?", abort=True, err=True)
    deleted = _delete(session, before, count)
    events = _delete_events(session, before)
    say(f"{deleted} runs{f' and {events} asset events' if events else ''} deleted.")


def _delete(session: Session, before: datetime, count: int) -> int:
    from rich.progress import Progress

    deleted = 0
    with Progress(console=console(err=True), transient=True) as progress:
        bar = progress.add_task("deleting runs", total=count)
        while some := session.store.upkeep.delete_old_runs(before):
            deleted += some
            progress.update(bar, completed=deleted)
    return deleted


def _delete_events(session: Session, before: datetime) -> int:
    deleted = 0
    while some := session.store.upkeep.delete_old_events(before):
        deleted += some
    return deleted
