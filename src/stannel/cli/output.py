"""How commands answer: a table for people; json, yaml or plain lines for programs."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Row = Mapping[str, Any]
Function = TypeVar("Function", bound=Callable[..., Any])

FORMS = ("table", "json", "yaml", "plain")
STYLES = {
    "success": "green",
    "running": "bright_green",
    "failed": "red",
    "upstream_failed": "dark_orange",
    "up_for_retry": "yellow",
    "up_for_reschedule": "yellow",
    "deferred": "magenta",
    "queued": "cyan",
    "scheduled": "cyan",
    "skipped": "bright_magenta",
    "removed": "dim",
    "none": "dim",
}

# Wide enough that nothing is folded in a file or a pipe.
_UNLIMITED = 1000


def output_option(function: Function) -> Function:
    """Let the user choose the form of an answer."""
    option = click.option(
        "--output",
        "-o",
        "form",
        type=click.Choice(FORMS),
        default="table",
        show_default=True,
        help="A table for people; json, yaml, or plain (values separated by tabs, no header) for programs.",
    )
    return option(function)


def show_rows(rows: Sequence[Row], form: str, *, columns: Sequence[str], empty: str = "") -> None:
    """Answer with a list. People and `plain` get `columns`, json and yaml everything; `empty` tells people why."""
    if form in ("json", "yaml"):
        click.echo(_encoded([dict(row) for row in rows], form), nl=False)
    elif form == "plain":
        for row in rows:
            click.echo("\t".join(_plain(row.get(column)) for column in columns))
    elif not rows:
        click.echo(empty or "Nothing to show.", err=True)
    else:
        _print_table(rows, columns)


def show_one(row: Row, form: str) -> None:
    """Answer with a single thing; people see only what is not empty."""
    if form in ("json", "yaml"):
        click.echo(_encoded(dict(row), form), nl=False)
    elif form == "plain":
        for key, value in row.items():
            click.echo(f"{key}\t{_plain(value)}")
    else:
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for key, value in row.items():
            if value not in (None, "", [], {}):
                grid.add_row(_title(key), cell(key, value))
        console().print(grid)


def console(*, err: bool = False) -> "Console":
    """Where tables go: coloured in a terminal, never folded outside of one."""
    from rich.console import Console

    found = Console(stderr=err, highlight=False, markup=False, emoji=False)
    if not found.is_terminal:
        found.width = _UNLIMITED
    return found


def cell(key: str, value: Any) -> "Text":
    """A value as people read it."""
    from rich.text import Text

    text = duration(value) if key == "duration" else _readable(value)
    return Text(text, style=STYLES.get(text, "") if key.endswith("state") else "")


def moment(value: datetime | None) -> str:
    """A moment as people read it: UTC, to the second."""
    return "" if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def duration(seconds: float | None) -> str:
    """How long something took: `0.31 s`, `4 min 05 s`, `2 h 10 min`."""
    if seconds is None:
        return ""
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def _print_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        numbers = all(isinstance(row.get(column), int | float | None) for row in rows)
        booleans = any(isinstance(row.get(column), bool) for row in rows)
        table.add_column(_title(column), justify="right" if numbers and not booleans else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(column, row.get(column)) for column in columns))
    console().print(table)


def _title(key: str) -> str:
    return key.replace("_", " ")


def _encoded(data: Any, form: str) -> str:
    import msgspec

    plain = msgspec.to_builtins(data, enc_hook=str)
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"
    return msgspec.yaml.encode(plain).decode()


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, bool):
        return "true" if value else "false"
    return _readable(value).replace("\t", " ").replace("\n", " ")


def _readable(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, list | tuple | set):
        return ", ".join(map(_readable, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}={_readable(item)}" for key, item in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
