"""`stannel info`: what is installed, where it is, and which programs are at work."""

import platform
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

import stannel
from stannel.cli.base import Command, Session, pass_session
from stannel.cli.output import console, output_option, show_one, show_rows

if TYPE_CHECKING:
    from stannel.store.leases import Lease


@click.command("info", cls=Command)
@output_option
@pass_session
def command(session: Session, form: str) -> None:
    """Show what is installed, where, and what is at work."""
    about, programs = _about(session), programs_at_work(session)
    if form != "table":
        show_one({**about, "programs": programs}, form)
        return
    show_one(about, form)
    console().print()
    columns = ("kind", "health", "hostname", "pid", "started_at", "renewed_at", "detail")
    show_rows(programs, form, columns=columns, empty="No program is at work; start them with: stannel standalone")


def _about(session: Session) -> dict[str, Any]:
    from stannel.errors import address_without_password
    from stannel.store.opening import version_of

    settings = session.settings
    about: dict[str, Any] = {
        "version": stannel.__version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "home": str(settings.home),
        "dags_folder": str(settings.core.dags_folder),
        "logs_folder": str(settings.logging.base_log_folder),
        "executor": settings.core.executor,
        "database": address_without_password(settings.database.sql_alchemy_conn.reveal()),
    }
    if not session.has_store:
        return {**about, "database_version": None}
    store = session.store
    files = store.dags.files()
    dags = store.dags.all()
    return {
        **about,
        "database_version": version_of(store.database),
        "dags": len(dags),
        "paused_dags": sum(dag.is_paused for dag in dags),
        "import_errors": sum(file.error is not None for file in files),
    }


def programs_at_work(session: Session) -> list[dict[str, Any]]:
    """Every program with a lease, and whether it is healthy."""
    if not session.has_store:
        return []
    now = session.now()
    return [
        {
            "kind": lease.kind,
            "owner": lease.owner,
            "health": health(lease, now),
            "hostname": lease.hostname,
            "pid": lease.pid,
            "started_at": lease.started_at,
            "renewed_at": lease.renewed_at,
            "detail": lease.detail,
        }
        for lease in session.store.leases.all()
    ]


def health(lease: "Lease", now: datetime) -> str:
    """Healthy means: the lease was renewed in time, and whoever renewed it says that it gets on with its work."""
    if not lease.is_live(now):
        return "gone"
    trouble = lease.detail.get("trouble")
    return f"stalled: {trouble}" if trouble else "healthy"
