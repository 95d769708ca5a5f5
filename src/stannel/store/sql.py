"""Statements are built with SQLAlchemy Core, compiled once per dialect, and run straight on the driver.

Every column is an integer, a float or a text, so no value needs converting on its way in or out.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import Any, Protocol, cast

import msgspec
from sqlalchemy import Boolean, ColumnElement, Insert, Table, TextClause, bindparam, insert, literal_column, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import Executable
from sqlalchemy.sql.compiler import SQLCompiler

Row = tuple[Any, ...]


class Cursor(Protocol):
    """What both drivers' cursors offer."""

    @property
    def rowcount(self) -> int: ...

    def execute(self, sql: str, params: Mapping[str, Any], /) -> Any: ...
    def executemany(self, sql: str, rows: Sequence[Mapping[str, Any]], /) -> Any: ...
    def fetchall(self) -> list[Row]: ...
    def fetchone(self) -> Row | None: ...


class AmongList(ColumnElement[bool]):
    """`column IN (a list given as one parameter)`, so that the text of a statement never depends on a length."""

    inherit_cache = False
    type = Boolean()

    def __init__(self, column: ColumnElement[Any], name: str) -> None:
        self.column, self.name = column, name

    def self_group(self, against: Any = None) -> ColumnElement[bool]:
        # The default wraps it as `(...) = 1` for SQLite, which then reads the whole table instead of an index.
        return self


def among(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """True where the column's value is in the list bound to `name`."""
    return AmongList(column, name)


@compiles(AmongList, "sqlite")
def _among_sqlite(element: AmongList, compiler: SQLCompiler, **kw: Any) -> str:
    column, values = compiler.process(element.column, **kw), compiler.process(bindparam(element.name), **kw)
    return f"{column} IN (SELECT value FROM json_each({values}))"


@compiles(AmongList, "postgresql")
def _among_postgres(element: AmongList, compiler: SQLCompiler, **kw: Any) -> str:
    column = compiler.process(element.column, **kw)
    return f"{column} = ANY(%({element.name})s)"


def word(value: StrEnum | str) -> ColumnElement[Any]:
    """A state written into the statement's text, where the planner can match it with a partial index."""
    return literal_column(f"'{value}'")


def words(values: Iterable[StrEnum | str]) -> list[ColumnElement[Any]]:
    return [word(value) for value in values]


def insert_into(table: Table, *columns: str) -> Insert:
    """An insert of the named columns, each bound to a parameter of the same name."""
    return insert(table).values({column: bindparam(column) for column in columns})


def upsert(table: Table, *columns: str) -> TextClause:
    """An insert that overwrites the row of the same primary key; both dialects spell it alike."""
    keys = [column.name for column in table.primary_key]
    changes = ", ".join(f'"{column}" = excluded."{column}"' for column in columns if column not in keys)
    names, values = ", ".join(f'"{column}"' for column in columns), ", ".join(f":{column}" for column in columns)
    wanted = ", ".join(f'"{key}"' for key in keys)
    return text(
        f'INSERT INTO "{table.name}" ({names}) VALUES ({values}) ON CONFLICT ({wanted}) DO UPDATE SET {changes}'
    )


class Compiled(msgspec.Struct, frozen=True):
    """A statement's text for one dialect, and the values that stand in it."""

    sql: str
    fixed: dict[str, Any]


SQLITE: Dialect = sqlite.dialect(paramstyle="named")

_compiled: dict[tuple[str, Executable], Compiled] = {}


def compile_once(dialect: Dialect, statement: Executable) -> Compiled:
    """Compile a module-level statement; the second time costs a dictionary look-up."""
    key = (dialect.name, statement)
    if (known := _compiled.get(key)) is None:
        known = _compiled[key] = compile_now(dialect, statement)
    return known


def compile_now(dialect: Dialect, statement: Executable) -> Compiled:
    """Compile a statement that was put together for this one call."""
    compiled = cast(
        SQLCompiler,
        statement.compile(dialect=dialect, compile_kwargs={"render_postcompile": True}),  # type: ignore[attr-defined]
    )
    required = {name for name, bind in getattr(compiled, "binds", {}).items() if bind.required}
    fixed = {name: _plain(value) for name, value in (compiled.params or {}).items() if name not in required}
    return Compiled(compiled.string, fixed)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, StrEnum) else value


class Duty(IntEnum):
    """What only one transaction in the whole database may do at a time; the numbers are PostgreSQL's advisory locks."""

    CREATE_TABLES = 7305
    QUEUE_TASKS = 7306
    START_RUNS = 7307
    SAVE_FILE = 7308
    CLAIM_STREAMS = 7309


_ALONE = text("SELECT pg_advisory_xact_lock(:duty)")


class Tx:
    """One open transaction. Statements run in it; topics named in `wake` are told once it is committed."""

    def __init__(self, cursor: Cursor, dialect: Dialect) -> None:
        self._cursor, self._dialect = cursor, dialect
        self.is_sqlite = dialect.name == "sqlite"
        self.topics: set[str] = set()

    def run(self, statement: Executable, **params: Any) -> int:
        """Run a statement; how many rows it touched."""
        self._execute(compile_once(self._dialect, statement), params)
        return self._cursor.rowcount

    def all(self, statement: Executable, **params: Any) -> list[Row]:
        self._execute(compile_once(self._dialect, statement), params)
        return self._cursor.fetchall()

    def one(self, statement: Executable, **params: Any) -> Row | None:
        """The first row. None: there is none."""
        self._execute(compile_once(self._dialect, statement), params)
        return self._cursor.fetchone()

    def query(self, statement: Executable) -> list[Row]:
        """The rows of a statement built for this call, values included."""
        self._execute(compile_now(self._dialect, statement), {})
        return self._cursor.fetchall()

    def change(self, statement: Executable) -> int:
        """Run a statement built for this call, values included; how many rows it touched."""
        self._execute(compile_now(self._dialect, statement), {})
        return self._cursor.rowcount

    def each(self, statement: Executable, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement once per row of parameters."""
        if not rows:
            return
        compiled = compile_once(self._dialect, statement)
        if compiled.fixed:
            rows = [{**compiled.fixed, **row} for row in rows]
        self._cursor.executemany(compiled.sql, rows)

    def each_row(self, statement: Executable, rows: Sequence[Mapping[str, Any]]) -> list[Row | None]:
        """Run a statement once per row of parameters; for each the row it returned, or None. One trip to a server."""
        compiled = compile_once(self._dialect, statement)
        given = [{**compiled.fixed, **row} for row in rows]
        if self.is_sqlite:
            return [self._cursor.execute(compiled.sql, params).fetchone() for params in given]
        if not given:
            return []
        # Only psycopg's cursor offers this: all statements are sent before the first answer is awaited.
        cursor: Any = self._cursor
        cursor.executemany(compiled.sql, given, returning=True)
        found: list[Row | None] = [cursor.fetchone()]
        while cursor.nextset():
            found.append(cursor.fetchone())
        return found

    def alone(self, duty: Duty) -> None:
        """Keep every other transaction with the same duty out until this one ends; SQLite has one writer anyway."""
        if not self.is_sqlite:
            self.all(_ALONE, duty=int(duty))

    def wake(self, *topics: str) -> None:
        """Tell whoever waits for these topics, as soon as this transaction is committed."""
        self.topics.update(topics)

    def _execute(self, compiled: Compiled, params: dict[str, Any]) -> None:
        if self.is_sqlite:
            for name, value in params.items():
                if isinstance(value, list):
                    params[name] = msgspec.json.encode(value).decode()
        self._cursor.execute(compiled.sql, {**compiled.fixed, **params} if compiled.fixed else params)
