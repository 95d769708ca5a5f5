"""Variables and connections that people keep in the store; values and passwords are sealed by the vault."""

from typing import Any

import msgspec
from sqlalchemy import bindparam, delete, select, update

from stannel.errors import UnknownId, closest
from stannel.store.database import Database
from stannel.store.schema import connection, variable
from stannel.store.sql import Row, upsert
from stannel.store.vault import Vault


class StoredVariable(msgspec.Struct, frozen=True):
    """A variable with its plain value."""

    key: str
    value: str
    description: str | None = None


class StoredConnection(msgspec.Struct, frozen=True, kw_only=True):
    """A connection with its plain password; `extra` is a JSON text."""

    conn_id: str
    conn_type: str
    host: str | None = None
    schema: str | None = None
    login: str | None = None
    password: str | None = None
    port: int | None = None
    extra: str | None = None
    description: str | None = None


_SAVE_VARIABLE = upsert(variable, "key", "value", "description")
_VARIABLES = select(variable.c.key, variable.c.value, variable.c.description).order_by(variable.c.key)
_VARIABLE = _VARIABLES.where(variable.c.key == bindparam("wanted"))
_DELETE_VARIABLE = delete(variable).where(variable.c.key == bindparam("wanted"))
# A value that somebody stored meanwhile stays; it is newer than the one that was read.
_RESEAL_VARIABLE = (
    update(variable)
    .where(variable.c.key == bindparam("wanted"), variable.c.value == bindparam("before"))
    .values(value=bindparam("sealed"))
)

_FIELDS = ("conn_id", "conn_type", "host", "schema", "login", "password", "port", "extra", "description")
_SAVE_CONNECTION = upsert(connection, *_FIELDS)
_CONNECTIONS = select(*(connection.c[name] for name in _FIELDS)).order_by(connection.c.conn_id)
_CONNECTION = _CONNECTIONS.where(connection.c.conn_id == bindparam("wanted"))
_DELETE_CONNECTION = delete(connection).where(connection.c.conn_id == bindparam("wanted"))
_SECRETS = ("password", "extra")
_RESEAL_CONNECTION = {
    name: update(connection)
    .where(connection.c.conn_id == bindparam("wanted"), connection.c[name] == bindparam("before"))
    .values({name: bindparam("sealed")})
    for name in _SECRETS
}


class Variables:
    """Named texts for DAG authors."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database, self._vault = database, vault

    def find(self, key: str) -> StoredVariable | None:
        """None: there is no such variable."""
        with self._database.read() as tx:
            row = tx.one(_VARIABLE, wanted=key)
        return None if row is None else self._open(row)

    def get(self, key: str) -> StoredVariable:
        """The variable of that key; an unknown one is refused with the nearest keys."""
        found = self.find(key)
        if found is None:
            raise UnknownId("variable", key, closest(key, self.keys()))
        return found

    def all(self) -> list[StoredVariable]:
        with self._database.read() as tx:
            return [self._open(row) for row in tx.all(_VARIABLES)]

    def keys(self, prefix: str = "") -> list[str]:
        with self._database.read() as tx:
            return [row[0] for row in tx.all(_VARIABLES) if row[0].startswith(prefix)]

    def save(self, key: str, value: str, description: str | None = None) -> None:
        """Make a variable, or overwrite the one of that key."""
        with self._database.transaction() as tx:
            tx.run(_SAVE_VARIABLE, key=key, value=self._vault.seal(value), description=description)

    def delete(self, key: str) -> bool:
        """False: there was no such variable."""
        with self._database.transaction() as tx:
            return tx.run(_DELETE_VARIABLE, wanted=key) > 0

    def reseal(self) -> int:
        """Seal every value with the newest key; how many there are. One that cannot be opened is refused by name."""
        with self._database.transaction() as tx:
            rows = tx.all(_VARIABLES)
            fresh = [
                {"wanted": row[0], "before": row[1], "sealed": self._vault.seal(self._open(row).value)} for row in rows
            ]
            tx.each(_RESEAL_VARIABLE, fresh)
        return len(rows)

    def _open(self, row: Row) -> StoredVariable:
        return StoredVariable(row[0], self._vault.open(row[1], f"the variable {row[0]!r}") or "", row[2])


class Connections:
    """How to reach other systems."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database, self._vault = database, vault

    def find(self, conn_id: str) -> StoredConnection | None:
        """None: there is no such connection."""
        with self._database.read() as tx:
            row = tx.one(_CONNECTION, wanted=conn_id)
        return None if row is None else self._open(row)

    def get(self, conn_id: str) -> StoredConnection:
        """The connection of that id; an unknown one is refused with the nearest ids."""
        found = self.find(conn_id)
        if found is None:
            raise UnknownId("connection", conn_id, closest(conn_id, [one.conn_id for one in self.all()]))
        return found

    def all(self) -> list[StoredConnection]:
        with self._database.read() as tx:
            return [self._open(row) for row in tx.all(_CONNECTIONS)]

    def save(self, one: StoredConnection) -> None:
        """Make a connection, or overwrite the one of that id."""
        row: dict[str, Any] = msgspec.structs.asdict(one)
        row["password"], row["extra"] = self._vault.seal(one.password), self._vault.seal(one.extra)
        with self._database.transaction() as tx:
            tx.run(_SAVE_CONNECTION, **row)

    def delete(self, conn_id: str) -> bool:
        """False: there was no such connection."""
        with self._database.transaction() as tx:
            return tx.run(_DELETE_CONNECTION, wanted=conn_id) > 0

    def reseal(self) -> int:
        """Seal every password and extra with the newest key; of how many connections. See `Variables.reseal`."""
        with self._database.transaction() as tx:
            rows = tx.all(_CONNECTIONS)
            for name in _SECRETS:
                tx.each(_RESEAL_CONNECTION[name], [fresh for row in rows if (fresh := self._resealed(row, name))])
        return len(rows)

    def _resealed(self, row: Row, name: str) -> dict[str, Any] | None:
        before = row[_FIELDS.index(name)]
        if before is None:
            return None
        plain = self._vault.open(before, f"the connection {row[0]!r}")
        return {"wanted": row[0], "before": before, "sealed": self._vault.seal(plain)}

    def _open(self, row: Row) -> StoredConnection:
        values = dict(zip(_FIELDS, row, strict=True))
        what = f"the connection {row[0]!r}"
        values["password"] = self._vault.open(values["password"], what)
        values["extra"] = self._vault.open(values["extra"], what)
        return StoredConnection(**values)
