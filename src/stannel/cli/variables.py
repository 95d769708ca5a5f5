"""`stannel variables`: texts that people keep for their DAGs."""

import sys
from pathlib import Path
from typing import Any

import click

from stannel.cli.base import Group, Refused, Session, pass_session, say
from stannel.cli.output import output_option, show_one, show_rows


@click.group("variables", cls=Group)
def command() -> None:
    """Keep texts that DAGs read.

    \b
    Examples:
      stannel variables set region eu-west-1
      stannel variables get region
      stannel variables export - > variables.json
    """


@command.command("list")
@click.option("--show-values", is_flag=True, help="Show the values too; some of them may be secret.")
@output_option
@pass_session
def list_(session: Session, show_values: bool, form: str) -> None:
    """List the variables."""
    rows: list[dict[str, Any]] = []
    for one in session.store.variables.all():
        value = {"value": one.value} if show_values else {}
        rows.append({"key": one.key, **value, "description": one.description})
    columns = ("key", "value", "description") if show_values else ("key", "description")
    show_rows(rows, form, columns=columns, empty="No variables. Make one with: stannel variables set KEY VALUE")


@command.command()
@click.argument("key")
@click.option("--default", help="Print this, and succeed, when there is no such variable.")
@output_option
@pass_session
def get(session: Session, key: str, default: str | None, form: str) -> None:
    """Print the value of a variable."""
    found = session.store.variables.find(key) if default is not None else session.store.variables.get(key)
    if form in ("json", "yaml"):
        row = {"key": key, "value": found.value if found else default, "description": found and found.description}
        show_one(row, form)
    else:
        click.echo(found.value if found else default)


@command.command("set")
@click.argument("key")
@click.argument("value")
@click.option("--description", help="What it is for. Without this, the one it has stays.")
@pass_session
def set_(session: Session, key: str, value: str, description: str | None) -> None:
    """Make a variable or change it; `-` as VALUE reads it from standard input."""
    if not key:
        raise click.UsageError("A variable needs a key that is not empty.")
    if value == "-":
        value = sys.stdin.read().rstrip("\n")
    known = session.store.variables.find(key)
    if description is None and known is not None:
        description = known.description
    session.store.variables.save(key, value, description)
    say(f"The variable {key!r} is {'changed' if known else 'stored'}.")


@command.command()
@click.argument("key")
@pass_session
def delete(session: Session, key: str) -> None:
    """Delete a variable."""
    session.store.variables.get(key)
    session.store.variables.delete(key)
    say(f"The variable {key!r} is deleted.")


@command.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--keep", is_flag=True, help="Leave variables that exist as they are.")
@pass_session
def import_(session: Session, file: Path, keep: bool) -> None:
    """Store the variables of a JSON file: an object of values, or of objects with `value` and `description`.

    A value that is not a text is stored as JSON.
    """
    import msgspec

    content = read_object(file)
    known = set(session.store.variables.keys()) if keep else set()
    stored = 0
    for key, given in content.items():
        if key in known:
            continue
        value, description = given, None
        if isinstance(given, dict) and "value" in given and given.keys() <= {"value", "description"}:
            value, description = given["value"], given.get("description")
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        session.store.variables.save(key, text, description)
        stored += 1
    kept = f"; {len(content) - stored} existed already and were left as they are" if len(content) > stored else ""
    say(f"{stored} variables stored{kept}.")


@command.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@pass_session
def export(session: Session, file: Path) -> None:
    """Write all variables, values included, to a JSON file that `import` reads; `-` is standard output."""
    content = {
        one.key: {"value": one.value, "description": one.description} if one.description else one.value
        for one in session.store.variables.all()
    }
    write_object(file, content)
    say(f"{len(content)} variables written to {'standard output' if str(file) == '-' else file}.")


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file; anything else is refused by name."""
    import msgspec

    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        content: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise Refused(f"{file} does not hold a JSON object: {error}. Nothing was stored.") from error
    return content


def write_object(file: Path, content: dict[str, Any]) -> None:
    """Write a JSON object; a file is readable only by its user, for it may hold secrets."""
    import os

    import msgspec

    data = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    if str(file) == "-":
        click.echo(data, nl=False)
        return
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(data)
