"""`stannel triggerer`: runs the triggers of deferred tasks, beside others on the same database."""

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from stannel.cli.base import Command, Refused, Session, pass_session, say

if TYPE_CHECKING:
    from stannel.cli.programs import Signals
    from stannel.triggerer.loop import Triggerer


def _capacity(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and int(value)):
        raise click.BadParameter(
            f"{value!r} is not a capacity: say how many triggers may run at once, 1 or more, or leave it out."
        )
    return int(value)


def _queues(_: click.Context, __: click.Parameter, value: str | None) -> list[str] | None:
    if value is None:
        return None
    names = [name.strip() for name in value.split(",") if name.strip()]
    if not names:
        raise click.BadParameter("names no queue; leave it out to serve the triggers that have none.")
    return list(dict.fromkeys(names))


@click.command("triggerer", cls=Command)
@click.option("--capacity", callback=_capacity, metavar="N", help="Triggers run at once; else [triggerer] capacity.")
@click.option("--queues", callback=_queues, metavar="A,B", help="Only triggers of these queues; * is every queue.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but that it is ready.")
@pass_session
def command(session: Session, capacity: int | None, queues: list[str] | None, quiet: bool) -> None:
    """Start only a triggerer, which runs what deferred tasks wait for.

    Several may work on one database and share the triggers; when one dies the others take over. The first Ctrl-C
    gives everything back, the second ends it at once. Without --queues it serves the triggers that have no queue;
    --queues needs [triggerer] queues_enabled, here and where tasks run.

    \b
    Examples:
      stannel triggerer --capacity 5000
      STANNEL__TRIGGERER__QUEUES_ENABLED=true stannel triggerer --queues default,gpu
    """
    from stannel.cli import programs
    from stannel.executors.logfile import log_to
    from stannel.triggerer.loop import Triggerer

    os.environ["STANNEL_HOME"] = str(session.home)
    settings = session.settings
    if queues and not settings.triggerer.queues_enabled:
        raise Refused(
            "--queues needs [triggerer] queues_enabled, which is false. Set it to true for this program and for those "
            "that run tasks, or leave --queues out."
        )
    log_file = log_to(settings)
    signals = programs.Signals()
    triggerer = Triggerer(session.store, settings, capacity=capacity, queues=queues)
    working = threading.Thread(target=triggerer.run, name="triggerer", daemon=True)
    working.start()
    if not programs.wait_until(lambda: _is_at_work(session), signals):
        say(f"The triggerer gives no sign of life yet; {log_file} may say why.")
    click.echo(f"ready in {programs.process_age():.1f} s")
    tell = (lambda _: None) if quiet else programs.tell_on_screen
    _serve(working, triggerer, signals, tell)
    if signals.count:
        tell("stopped")
        return
    raise Refused(f"The triggerer ended because of a bug in it; {log_file} says more.")


def _is_at_work(session: Session) -> bool:
    return any(one.kind == "triggerer" and one.pid == os.getpid() for one in session.store.leases.all())


def _serve(working: threading.Thread, triggerer: "Triggerer", signals: "Signals", tell: Callable[[str], None]) -> None:
    """Return when it has ended: after the first signal cleanly, after the second at once, after the third as it is."""
    obeyed = 0
    while working.is_alive():
        if signals.count > obeyed:
            obeyed = signals.count
            if obeyed > 2:
                os._exit(1)
            if obeyed == 1 and (running := triggerer.running):
                tell(f"giving back {running} triggers; press Ctrl-C again to end them now")
            triggerer.stop()
        if obeyed:
            working.join(0.05)
        else:
            signals.wait(1.0)
