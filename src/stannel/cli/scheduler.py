"""`stannel scheduler`: a scheduler with its workers, beside others on the same database."""

import os

import click

from stannel.cli.base import Command, Session, pass_session, say


@click.command("scheduler", cls=Command)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but that it is ready.")
@pass_session
def command(session: Session, quiet: bool) -> None:
    """Start only a scheduler with its workers.

    Several may work on one PostgreSQL database, on as many machines; one program must read the DAG files
    (stannel standalone does), and deferred tasks need a triggerer (standalone has one, and see stannel triggerer).

    \b
    Example:
      STANNEL__DATABASE__SQL_ALCHEMY_CONN=postgresql://me@db/stannel stannel scheduler
    """
    from stannel.cli import programs
    from stannel.cli.engine import Engine
    from stannel.cli.news import News
    from stannel.executors.logfile import log_to

    os.environ["STANNEL_HOME"] = str(session.home)
    settings = session.settings
    log_file = log_to(settings)
    signals = programs.Signals()
    engine = Engine(session.store, settings, parse=False, trigger=False)
    engine.start()
    for name in programs.wait_until_ready(engine, session.store, signals):
        say(f"The {name} gives no sign of life yet; {log_file} may say why.")
    click.echo(f"ready in {programs.process_age():.1f} s")
    tell = (lambda _: None) if quiet else programs.tell_on_screen
    if not signals.count:
        programs.serve(engine, session.store, signals, News(session.store), tell)
    programs.stop(engine, signals, tell, grace=settings.core.killed_task_cleanup_time)
    tell("stopped")
