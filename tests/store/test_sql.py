"""Statements keep the shape the query planners need."""

import sqlite3

from sqlalchemy import select, update
from sqlalchemy.schema import CreateTable

from stannel.store.schema import metadata, task_instance
from stannel.store.sql import SQLITE, among


def plan(statement) -> list[str]:
    """How SQLite would run the statement: by which index, or by reading a whole table."""
    with sqlite3.connect(":memory:") as connection:
        for table in (metadata.tables["dag_run"], task_instance):
            connection.execute(str(CreateTable(table).compile(dialect=SQLITE)))
        text = str(statement.compile(dialect=SQLITE))
        names = {"pks": "[1, 2]", "ended_at": None}
        return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", names)]


def test_a_list_of_keys_is_looked_up_and_the_table_is_not_read_through():
    found = among(task_instance.c.pk, "pks")
    living = task_instance.c.ended_at.is_(None)
    for statement in (
        select(task_instance.c.state).where(found, living),
        update(task_instance).where(found, living).values(ended_at=None),
    ):
        assert any("USING INTEGER PRIMARY KEY" in step for step in plan(statement))
        assert "SCAN task_instance" not in plan(statement)
