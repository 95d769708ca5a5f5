"""Rows written in bulk into an engine's tables, made from rows the engine wrote itself."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg

Execute = Callable[[str], list[tuple[object, ...]]]


def numbers(count: int, *, is_sqlite: bool) -> str:
    """A table for a FROM clause, with the column i from 1 to `count`."""
    if not is_sqlite:
        return f"(SELECT i FROM generate_series(1, {count}) AS s(i))"
    counting = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
    return f"({counting} SELECT i FROM n WHERE {count} > 0)"


def copy(execute: Execute, table: str, alias: str, changed: dict[str, str | None], source: str) -> None:
    """Insert rows made from rows of the same table; `changed` says what differs, None leaves it to the database."""
    columns = [name for name in column_names(execute, table) if changed.get(name, "") is not None]
    values = [changed.get(name) or f'{alias}."{name}"' for name in columns]
    names = ", ".join(f'"{name}"' for name in columns)
    execute(f'INSERT INTO "{table}" ({names}) SELECT {", ".join(values)} FROM {source}')


def column_names(execute: Execute, table: str) -> list[str]:
    """Every column of the table, so that a new one does not need a change here."""
    try:
        rows = execute(f"SELECT name FROM pragma_table_info('{table}')")
    except psycopg.errors.UndefinedFunction:
        columns = "information_schema.columns WHERE table_schema = 'public'"
        rows = execute(f"SELECT column_name FROM {columns} AND table_name = '{table}'")
    return [str(name) for (name,) in rows]


@contextlib.contextmanager
def writing(address: str) -> Iterator[Execute]:
    """A connection that keeps what it wrote and, on PostgreSQL, leaves the tables as its own upkeep would."""
    if address.startswith("sqlite"):
        file = Path(address.removeprefix("sqlite:///"))
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield lambda sql: connection.execute(sql).fetchall()
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    with psycopg.connect(address, autocommit=True) as connection:
        yield lambda sql: [] if not (cursor := connection.execute(sql)).description else cursor.fetchall()
        connection.execute("VACUUM ANALYZE")
