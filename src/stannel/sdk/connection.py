"""Connections: where a system is and how to log in, kept out of DAG files."""

import json
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from stannel.protocol.requests import GetConnection
from stannel.sdk import comms, environment
from stannel.sdk.exceptions import AirflowException, AirflowNotFoundException, AirflowRuntimeError
from stannel.sdk.log import mask_secret

# A URI carries `extra` as query parameters; what does not fit into text pairs travels whole under this name.
_EXTRA_KEY = "__extra__"
_FIELDS = ("conn_type", "host", "schema", "login", "password", "port")


class Connection:
    """A connection; made from its parts, from a URI, or from the engine with `Connection.get("my_db")`."""

    def __init__(
        self,
        conn_id: str | None = None,
        conn_type: str | None = None,
        description: str | None = None,
        host: str | None = None,
        login: str | None = None,
        password: str | None = None,
        schema: str | None = None,
        port: int | None = None,
        extra: str | dict[str, Any] | None = None,
        uri: str | None = None,
    ) -> None:
        self.conn_id, self.conn_type, self.description = conn_id, conn_type, description
        self.host, self.login, self.password, self.schema, self.port = host, login, password, schema, port
        self.extra: str | None = json.dumps(extra) if isinstance(extra, dict) else extra
        if uri is not None:
            if any((conn_type, host, login, password, schema, port, extra)):
                raise AirflowException("A connection is made from a URI or from its parts, not from both.")
            self._read_uri(uri)

    @classmethod
    def get(cls, conn_id: str) -> "Connection":
        """The connection of that id: the environment first, then the engine."""
        text = environment.lookup("CONN", conn_id)
        if text is not None:
            found_here = cls.from_text(conn_id, text)
            mask_secret(found_here.password)
            mask_secret(found_here.extra_dejson, "extra")
            return found_here
        if comms.current_channel() is None:
            raise AirflowNotFoundException(
                f"The connection {conn_id!r} is not in the environment (STANNEL_CONN_{conn_id.upper()}), and stored "
                "connections can be read only while a task runs."
            )
        try:
            found = comms.ask(GetConnection(conn_id))
        except AirflowRuntimeError as error:
            if error.error != "CONNECTION_NOT_FOUND":
                raise
            raise AirflowNotFoundException(
                f"There is no connection {conn_id!r}. Add it with: stannel connections add {conn_id} --uri URI"
            ) from None
        return cls(conn_id=conn_id, extra=found.extra, **{name: getattr(found, name) for name in _FIELDS})

    @classmethod
    def from_text(cls, conn_id: str, text: str) -> "Connection":
        """A connection written as a URI or as a JSON object."""
        return cls.from_json(text, conn_id) if text.lstrip().startswith("{") else cls(conn_id=conn_id, uri=text)

    @classmethod
    def from_json(cls, value: str, conn_id: str | None = None) -> "Connection":
        """A connection written as a JSON object with the names of the parts."""
        try:
            parts = json.loads(value)
        except ValueError:
            raise AirflowException(f"The connection {conn_id!r} begins like JSON but cannot be read as such.") from None
        known = {name: parts.pop(name) for name in (*_FIELDS, "description", "extra", "uri") if name in parts}
        if parts:
            raise AirflowException(f"The connection {conn_id!r} has the unknown part {min(parts)!r}.")
        if known.get("port") is not None:
            known["port"] = int(known["port"])
        return cls(conn_id=conn_id, **known)

    def _read_uri(self, uri: str) -> None:
        parts = urlsplit(uri)
        if not parts.scheme:
            raise AirflowException(f"The URI of connection {self.conn_id!r} has no type, as in postgres://host/db.")
        scheme = parts.scheme.lower()
        self.conn_type = {"postgresql": "postgres"}.get(scheme, scheme.replace("-", "_"))
        try:
            self.port = parts.port
        except ValueError:
            raise AirflowException(f"The URI of connection {self.conn_id!r} has a port that is no number.") from None
        host = parts.netloc.rpartition("@")[2]
        if self.port is not None:
            host = host.rpartition(":")[0]
        path = parts.path[1:]
        # `http://https%3a%2f%2fhost` and `http://host/https` are how a protocol is written into a URI.
        protocol, mark, rest = path.partition("://") if "://" in path else ("", "", path)
        self.host = unquote(f"{protocol}{mark}{host}" if mark else host.rstrip(":")) or None
        self.schema = unquote(rest) or None
        self.login = None if parts.username is None else unquote(parts.username)
        self.password = None if parts.password is None else unquote(parts.password)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        if query:
            self.extra = query[_EXTRA_KEY] if _EXTRA_KEY in query else json.dumps(query)

    def get_uri(self) -> str:
        """The connection as a URI that gives an equal connection when read again."""
        scheme = (self.conn_type or "").lower().replace("_", "-")
        uri = f"{scheme}://" if scheme else "//"
        if self.login is not None or self.password is not None:
            uri += quote(self.login or "", safe="")
            uri += "" if self.password is None else f":{quote(self.password, safe='')}"
            uri += "@"
        uri += quote(self.host or "", safe="")
        uri += f":{self.port}" if self.port is not None else ""
        uri += f"/{quote(self.schema or '', safe='')}" if self.schema or self.extra else ""
        return uri + (f"?{self._query()}" if self.extra else "")

    def _query(self) -> str:
        extra = self.extra_dejson
        simple = extra and all(isinstance(value, str) for value in extra.values()) and _EXTRA_KEY not in extra
        return urlencode(extra if simple else {_EXTRA_KEY: self.extra or ""})

    @property
    def extra_dejson(self) -> dict[str, Any]:
        """`extra` as a dict; empty if there is none or it is not a JSON object."""
        try:
            value = json.loads(self.extra) if self.extra else {}
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def get_extra_dejson(self) -> dict[str, Any]:
        return self.extra_dejson

    def to_dict(self) -> dict[str, Any]:
        """The parts by name, with `extra` as a dict."""
        parts = {name: getattr(self, name) for name in ("conn_id", *_FIELDS, "description")}
        return {**parts, "extra": self.extra_dejson}

    def as_json(self) -> str:
        """The parts that are set as a JSON object, without the id."""
        parts = {name: value for name, value in self.to_dict().items() if name != "conn_id" and value}
        return json.dumps(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Connection) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Connection: {self.conn_id}>"


class BaseHook:
    """Base of classes that talk to another system through a connection."""

    conn_type: str | None = None

    def __init__(self, logger_name: str | None = None) -> None:
        self._logger_name = logger_name

    @classmethod
    def get_connection(cls, conn_id: str) -> Connection:
        """The connection of that id."""
        return Connection.get(conn_id)

    def get_conn(self) -> Any:
        """A live client of the other system."""
        raise NotImplementedError(f"{type(self).__name__} has no get_conn() method")
