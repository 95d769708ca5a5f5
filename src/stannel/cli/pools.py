"""`stannel pools`: how many tasks of a kind run at once."""

from typing import TYPE_CHECKING, Any

import click

from stannel.cli.base import Group, Refused, Session, pass_session, say
from stannel.cli.output import output_option, show_one, show_rows

if TYPE_CHECKING:
    from stannel.store.pools import Pool


@click.group("pools", cls=Group)
def command() -> None:
    """Limit how many tasks of a kind run at once.

    \b
    Examples:
      stannel pools set warehouse 4 --description "queries at the same time"
      stannel pools list
    """


@command.command("list")
@output_option
@pass_session
def list_(session: Session, form: str) -> None:
    """List the pools and how full they are."""
    rows = [_row(pool) for pool in session.store.pools.all()]
    show_rows(rows, form, columns=("name", "slots", "used", "free", "include_deferred", "description"))


@command.command()
@click.argument("name")
@output_option
@pass_session
def get(session: Session, name: str, form: str) -> None:
    """Show one pool."""
    show_one(_row(_pool(session, name)), form)


# Without this, -1 would be taken for an option.
@command.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("slots", type=click.IntRange(min=-1))
@click.option("--description", help="What it is for. Without this, the one it has stays.")
@click.option("--include-deferred/--exclude-deferred", default=None, help="Whether deferred tasks hold their slots.")
@pass_session
def set_(session: Session, name: str, slots: int, description: str | None, include_deferred: bool | None) -> None:
    """Make a pool or change it; -1 SLOTS means no limit."""
    known = next((pool for pool in session.store.pools.all() if pool.name == name), None)
    if description is None:
        description = known.description if known else ""
    if include_deferred is None:
        include_deferred = known.include_deferred if known else False
    session.store.pools.save(name, slots, description, include_deferred=include_deferred)
    say(f"The pool {name!r} has {'no limit' if slots < 0 else f'{slots} slots'}.")


@command.command()
@click.argument("name")
@pass_session
def delete(session: Session, name: str) -> None:
    """Delete a pool; tasks that name it then wait until it is made again."""
    from stannel.store.pools import DEFAULT_POOL

    pool = _pool(session, name)
    if name == DEFAULT_POOL:
        raise Refused(f"{DEFAULT_POOL!r} cannot be deleted: tasks that name no pool run in it.")
    if pool.used:
        raise Refused(f"The pool {name!r} is in use by {pool.used} slots; delete it when its tasks have ended.")
    session.store.pools.delete(name)
    say(f"The pool {name!r} is deleted.")


def _pool(session: Session, name: str) -> "Pool":
    from stannel.errors import UnknownId, closest

    pools = {pool.name: pool for pool in session.store.pools.all()}
    if name not in pools:
        raise UnknownId("pool", name, closest(name, pools))
    return pools[name]


def _row(pool: "Pool") -> dict[str, Any]:
    return {
        "name": pool.name,
        "slots": pool.slots,
        "used": pool.used,
        "free": None if pool.slots < 0 else max(pool.slots - pool.used, 0),
        "include_deferred": pool.include_deferred,
        "description": pool.description,
    }
