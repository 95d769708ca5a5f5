"""What every command shares: the home it works on, options that fit anywhere, and how an error is shown."""

import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stannel.errors import StannelError, closest, did_you_mean

if TYPE_CHECKING:
    from stannel.settings import Settings
    from stannel.store.store import Store

INTERRUPTED = 130


class Refused(StannelError):
    """A command did not do what it was asked for; the sentence says why, and nothing was changed."""


class Session:
    """One call of the program: its home, its settings and its store, each made when it is first asked for."""

    def __init__(self) -> None:
        self.given_home: Path | None = None
        self.traceback = os.environ.get("STANNEL_TRACEBACK", "") not in ("", "0")

    @cached_property
    def home(self) -> Path:
        from stannel.settings import stannel_home

        return self.given_home.expanduser().absolute() if self.given_home else stannel_home(os.environ)

    @cached_property
    def settings(self) -> "Settings":
        from stannel.settings import load_settings

        settings = load_settings(self.home, os.environ)
        for warning in settings.warnings:
            say(f"warning: {warning}")
        return settings

    @cached_property
    def store(self) -> "Store":
        from stannel.store.opening import open_store

        return open_store(self.settings)

    @property
    def has_store(self) -> bool:
        """Whether there is a database already; asking does not make one."""
        address = self.settings.database.sql_alchemy_conn.reveal()
        file = Path(address.removeprefix("sqlite:///")).expanduser()
        return not address.startswith("sqlite:///") or file.exists()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def close(self) -> None:
        if "store" in self.__dict__:
            self.store.close()


def say(text: str) -> None:
    """A line for people, beside the output."""
    click.echo(text, err=True)


def _set_home(context: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        _session(context).given_home = value


def _set_traceback(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        _session(context).traceback = True


def _session(context: click.Context) -> Session:
    return context.ensure_object(Session)


def _anywhere(*, hidden: bool) -> list[click.Parameter]:
    return [
        click.Option(
            ["--home"],
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="The folder everything lives in; otherwise STANNEL_HOME, or ~/.stannel.",
            expose_value=False,
            hidden=hidden,
            callback=_set_home,
        ),
        click.Option(
            ["--traceback"],
            is_flag=True,
            help="Show where in the code an error comes from; also STANNEL_TRACEBACK=1.",
            expose_value=False,
            hidden=hidden,
            callback=_set_traceback,
        ),
    ]


class Command(click.Command):
    """A command that takes `--home` and `--traceback` as well."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *_anywhere(hidden=True)]


class Group(click.Group):
    """A noun with its commands; an unknown command gets a suggestion."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            near = did_you_mean(closest(args[0], known)) or f"; {ctx.command_path} --help lists them."
            raise click.UsageError(f"There is no command {args[0]!r}{near}", ctx)
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *_anywhere(hidden=ctx.parent is not None)]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class Root(Group):
    """The program itself: imports a command when it is called, and turns every error into a sentence."""

    def __init__(self, *, lazy: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        command: click.Command = importlib.import_module(f"stannel.cli.{cmd_name.replace('-', '_')}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.lazy.items()))

    def invoke(self, ctx: click.Context) -> Any:
        session = _session(ctx)
        try:
            try:
                return super().invoke(ctx)
            finally:
                session.close()
        except StannelError as error:
            _fail(session, str(error))
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort, OSError) as error:
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                _fail(session, f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
            raise
        except Exception as error:  # noqa: BLE001 (whatever it was, a person reads it)
            hint = "" if session.traceback else " Run the command again with --traceback to see where."
            _fail(session, f"This is a bug in Stannel: {type(error).__name__}: {error}.{hint}")


def _fail(session: Session, sentence: str) -> None:
    if session.traceback:
        traceback.print_exc(file=sys.stderr)
    say(f"stannel: {sentence}")
    raise click.exceptions.Exit(1)


pass_session = click.make_pass_decorator(Session, ensure=True)
