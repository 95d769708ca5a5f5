"""`stannel standalone`: the whole engine in one program."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stannel.cli.base import Command, Refused, Session, pass_session, say

if TYPE_CHECKING:
    from stannel.cli.news import News


@click.command("standalone", cls=Command)
@click.option(
    "--dags",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder of DAG files; otherwise [core] dags_folder.",
)
@click.option("--no-triggerer", is_flag=True, help="Leave triggers to others: stannel triggerer.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but that it is ready.")
@pass_session
def command(session: Session, dags: Path | None, no_triggerer: bool, quiet: bool) -> None:
    """Start the whole engine in one program.

    It makes the database if there is none, reads the DAG files, and runs what is due until Ctrl-C. The first Ctrl-C
    waits for running tasks, the second stops them.

    \b
    Examples:
      stannel standalone --dags ./dags
      stannel --home /srv/stannel standalone --quiet
    """
    from stannel.cli.workers import started_executor

    if dags is not None:
        # Workers and parsers are processes of their own; they read the environment.
        os.environ["STANNEL__CORE__DAGS_FOLDER"] = str(dags.absolute())
    os.environ["STANNEL_HOME"] = str(session.home)
    settings = session.settings
    with only_one(settings.home):
        settings.core.dags_folder.mkdir(parents=True, exist_ok=True)
        executor = started_executor(settings)

        from stannel.cli import programs
        from stannel.cli.engine import Engine
        from stannel.cli.news import News
        from stannel.executors.logfile import log_to

        log_file = log_to(settings)
        signals = programs.Signals()
        engine = Engine(session.store, settings, executor=executor, trigger=not no_triggerer)
        engine.start()
        missing = programs.wait_until_ready(engine, session.store, signals)
        news = News(session.store)
        _announce(session, news, log_file, missing, quiet=quiet)
        tell = _say_nothing if quiet else programs.tell_on_screen
        if not signals.count:
            programs.serve(engine, session.store, signals, news, tell)
        programs.stop(engine, signals, tell, grace=settings.core.killed_task_cleanup_time)
        tell("stopped")


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Hold the home for this process; a second one is refused by name."""
    home.mkdir(parents=True, exist_ok=True)
    with open(home / "standalone.lock", "a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            pid = lock.read().strip()
            raise Refused(
                f"Stannel runs already on {home}{f' (process {pid})' if pid else ''}; "
                "stop it first, or choose another home with --home."
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _announce(session: Session, news: "News", log_file: Path, missing: list[str], *, quiet: bool) -> None:
    from stannel.cli.programs import process_age

    if not quiet:
        _panel(session, news, log_file)
    for name in missing:
        say(f"The {name} gives no sign of life yet; {log_file} may say why.")
    click.echo(f"ready in {process_age():.1f} s")


def _panel(session: Session, news: "News", log_file: Path) -> None:
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    import stannel
    from stannel.cli.output import console
    from stannel.errors import address_without_password

    settings = session.settings
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    broken = f", {news.error_count} files that cannot be imported" if news.error_count else ""
    for name, value in (
        ("home", str(settings.home)),
        ("database", address_without_password(settings.database.sql_alchemy_conn.reveal())),
        ("DAG folder", str(settings.core.dags_folder)),
        ("DAGs", f"{news.dag_count}{broken}"),
        ("log", str(log_file)),
    ):
        grid.add_row(name, Text(value, style="red" if name == "DAGs" and broken else ""))
    title = Text(f"Stannel {stannel.__version__}", style="bold")
    console().print(Panel.fit(grid, title=title, title_align="left", subtitle="Ctrl-C stops", subtitle_align="right"))


def _say_nothing(_: str) -> None:
    pass
