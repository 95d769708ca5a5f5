"""`stannel triggerers`: the programs that run triggers."""

from typing import TYPE_CHECKING, Any

import click

from stannel.cli.base import Group, Session, pass_session, say
from stannel.cli.info import health
from stannel.cli.output import output_option, show_rows
from stannel.model.trigger import EVERY_QUEUE

if TYPE_CHECKING:
    from stannel.store.leases import Lease

COLUMNS = ("owner", "health", "hostname", "pid", "running", "capacity", "queues", "started_at")


@click.group("triggerers", cls=Group)
def command() -> None:
    """List the programs that run triggers.

    \b
    Example:
      stannel triggerers list
    """


@command.command("list")
@output_option
@pass_session
def list_(session: Session, form: str) -> None:
    """List triggerers: where they are, how much they run, and whether they are well."""
    from stannel.cli.waits import NO_TRIGGERER

    found = [one for one in session.store.leases.all() if one.kind == "triggerer"]
    rows = [_row(session, one) for one in found]
    show_rows(rows, form, columns=COLUMNS, empty=f"{NO_TRIGGERER[0].upper()}{NO_TRIGGERER[1:]}")
    at_work = [one for one in found if one.is_live(session.now())]
    served = {queue for one in at_work for queue in one.detail.get("queues") or ()}
    if at_work and EVERY_QUEUE not in served and (unserved := sorted(set(session.store.triggers.queues()) - served)):
        say(f"Triggers wait in queues that no triggerer serves: {', '.join(unserved)}")


def _row(session: Session, one: "Lease") -> dict[str, Any]:
    return {
        "owner": one.owner,
        "health": health(one, session.now()),
        "hostname": one.hostname,
        "pid": one.pid,
        "running": one.detail.get("running"),
        "capacity": one.detail.get("capacity"),
        "queues": one.detail.get("queues"),
        "started_at": one.started_at,
        "renewed_at": one.renewed_at,
        "detail": one.detail,
    }
