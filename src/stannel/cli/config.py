"""`stannel config`: the settings that hold, and where each comes from."""

from typing import Any

import click
import msgspec

from stannel.cli.base import Group, Session, pass_session
from stannel.cli.output import output_option, show_one, show_rows


@click.group("config", cls=Group)
def command() -> None:
    """Show the settings and where they come from.

    \b
    Examples:
      stannel config list --section core
      stannel config get core parallelism
      stannel config list --changed
    """


@command.command("list")
@click.option("--section", help="Only this section.")
@click.option("--changed", is_flag=True, help="Only what somebody set.")
@output_option
@pass_session
def list_(session: Session, section: str | None, changed: bool, form: str) -> None:
    """List every setting with its value and origin; secrets are hidden."""
    entries = session.settings.entries()
    sections = list(dict.fromkeys(entry.section for entry in entries))
    if section is not None and section not in sections:
        from stannel.errors import UnknownId, closest

        raise UnknownId("section", section, closest(section, sections))
    rows: list[dict[str, Any]] = [
        msgspec.structs.asdict(entry)
        for entry in entries
        if section in (None, entry.section) and not (changed and entry.origin == "default")
    ]
    show_rows(rows, form, columns=("section", "key", "value", "origin"), empty="Every setting has its default.")


@command.command()
@click.argument("section")
@click.argument("key", required=False)
@output_option
@pass_session
def get(session: Session, section: str, key: str | None, form: str) -> None:
    """Print one setting: SECTION KEY, or SECTION.KEY."""
    if key is None:
        section, _, key = section.partition(".")
    entry = session.settings.entry(section, key)
    if form in ("json", "yaml"):
        show_one(msgspec.structs.asdict(entry), form)
    else:
        click.echo(entry.value if isinstance(entry.value, str) else msgspec.json.encode(entry.value).decode())
