"""`stannel connections`: how to reach other systems."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stannel.cli.base import Group, Refused, Session, pass_session, say
from stannel.cli.output import output_option, show_one, show_rows
from stannel.cli.variables import read_object, write_object

if TYPE_CHECKING:
    from stannel.sdk.connection import Connection
    from stannel.store.entries import StoredConnection

_PARTS = ("conn_type", "host", "schema", "login", "password", "port", "extra")
_HIDDEN = "***"


@click.group("connections", cls=Group)
def command() -> None:
    """Keep the addresses and passwords of other systems.

    \b
    Examples:
      stannel connections add warehouse --uri postgres://me:secret@db.example:5432/sales
      stannel connections add api --conn-type http --host api.example --password s3cret
      stannel connections get warehouse --show-secrets
    """


@command.command("list")
@output_option
@pass_session
def list_(session: Session, form: str) -> None:
    """List the connections; passwords stay hidden."""
    rows = [_row(one, show_secrets=False) for one in session.store.connections.all()]
    columns = ("conn_id", "conn_type", "host", "port", "schema", "login", "description")
    empty = "No connections. Make one with: stannel connections add ID --uri URI"
    show_rows(rows, form, columns=columns, empty=empty)


@command.command()
@click.argument("conn_id")
@click.option("--show-secrets", is_flag=True, help="Show the password and the extra part too.")
@output_option
@pass_session
def get(session: Session, conn_id: str, show_secrets: bool, form: str) -> None:
    """Show one connection."""
    show_one(_row(session.store.connections.get(conn_id), show_secrets=show_secrets), form)


@command.command()
@click.argument("conn_id")
@click.option("--uri", help="The whole connection as a URI: type://login:password@host:port/schema?extra=value.")
@click.option("--json", "json_text", help="The whole connection as a JSON object of its parts.")
@click.option("--conn-type", help="What kind of system it is, such as postgres or http.")
@click.option("--host")
@click.option("--schema", help="The database or the like.")
@click.option("--login")
@click.option("--password")
@click.option("--port", type=int)
@click.option("--extra", help="More settings, as a JSON object.")
@click.option("--description")
@click.option("--replace", is_flag=True, help="Overwrite the connection of this id.")
@pass_session
def add(
    session: Session,
    /,
    *,
    conn_id: str,
    uri: str | None,
    json_text: str | None,
    replace: bool,
    description: str | None,
    **parts: Any,
) -> None:
    """Add a connection: from --uri, from --json, or from its parts."""
    ways = [uri is not None, json_text is not None, any(value is not None for value in parts.values())]
    if sum(ways) != 1:
        raise click.UsageError("Give the connection as --uri, as --json, or in parts (--conn-type, --host, ...).")
    if parts["conn_type"] is None and ways[2]:
        raise click.UsageError("A connection in parts needs --conn-type.")
    if not replace and session.store.connections.find(conn_id) is not None:
        raise Refused(f"There is a connection {conn_id!r} already; overwrite it with --replace.")
    given = uri or json_text or {name: value for name, value in parts.items() if value is not None}
    session.store.connections.save(_stored(conn_id, given, description))
    say(f"The connection {conn_id!r} is stored.")


@command.command()
@click.argument("conn_id")
@pass_session
def delete(session: Session, conn_id: str) -> None:
    """Delete a connection."""
    session.store.connections.get(conn_id)
    session.store.connections.delete(conn_id)
    say(f"The connection {conn_id!r} is deleted.")


@command.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--keep", is_flag=True, help="Leave connections that exist as they are.")
@pass_session
def import_(session: Session, file: Path, keep: bool) -> None:
    """Store the connections of a JSON file: by id, each a URI or an object of its parts."""
    content = read_object(file)
    known = {one.conn_id for one in session.store.connections.all()} if keep else set()
    # All are read before the first is stored, so that a bad one leaves everything as it was.
    new = [_stored(conn_id, given, None) for conn_id, given in content.items() if conn_id not in known]
    for one in new:
        session.store.connections.save(one)
    kept = f"; {len(content) - len(new)} existed already and were left as they are" if len(content) > len(new) else ""
    say(f"{len(new)} connections stored{kept}.")


@command.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@pass_session
def export(session: Session, file: Path) -> None:
    """Write all connections, passwords included, to a JSON file that `import` reads; `-` is standard output."""
    content = {}
    for one in session.store.connections.all():
        row = _row(one, show_secrets=True)
        content[one.conn_id] = {name: value for name, value in row.items() if name != "conn_id" and value is not None}
    write_object(file, content)
    say(f"{len(content)} connections written to {'standard output' if str(file) == '-' else file}.")


def _stored(conn_id: str, given: Any, description: str | None) -> "StoredConnection":
    from stannel.store.entries import StoredConnection

    one = _read(conn_id, given)
    if not one.conn_type:
        raise Refused(f"The connection {conn_id!r} has no conn_type; nothing was stored.")
    values = {name: getattr(one, name) for name in _PARTS}
    return StoredConnection(conn_id=conn_id, description=description or one.description, **values)


def _read(conn_id: str, given: Any) -> "Connection":
    import msgspec

    from stannel.sdk.connection import Connection
    from stannel.sdk.exceptions import AirflowException

    if not isinstance(given, str | dict):
        raise Refused(f"The connection {conn_id!r} is neither a URI nor an object; nothing was stored.")
    try:
        text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
        return Connection.from_text(conn_id, text)
    except AirflowException as error:
        raise Refused(f"{error} Nothing was stored.") from error


def _row(one: "StoredConnection", *, show_secrets: bool) -> dict[str, Any]:
    import msgspec

    row: dict[str, Any] = msgspec.structs.asdict(one)
    if not show_secrets:
        row.update({name: _HIDDEN for name in ("password", "extra") if row[name]})
    return row
