"""How Alembic reaches the database; run by `stannel.store.migrate` only. An upgrade happens whole or not at all."""

from alembic import context
from sqlalchemy import Connection, NullPool, create_engine, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from stannel.store.schema import metadata
from stannel.store.sql import Duty

# The same duty as creating the tables of an empty database: neither may happen twice at once.
_CREATING = text(f"SELECT pg_advisory_xact_lock({int(Duty.CREATE_TABLES)})")

engine = create_engine(context.config.get_main_option("sqlalchemy.url") or "", poolclass=NullPool)

if engine.dialect.name == "sqlite":
    # The driver would otherwise commit before and after each change of a table.
    @event.listens_for(engine, "connect")
    def _leave_transactions_to_us(driver: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        driver.isolation_level = None

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


with engine.begin() as connection:
    if engine.dialect.name == "postgresql":
        connection.execute(_CREATING)
    context.configure(
        connection=connection, target_metadata=metadata, render_as_batch=True, transaction_per_migration=False
    )
    context.run_migrations()
