"""What the parser and the process that imports a DAG file say to each other: one order, one result."""

import msgspec

# The result of a DAG file with tens of thousands of tasks is a few MiB; beyond this something is wrong.
LONGEST_RESULT = 256 * 1024 * 1024


class ParseOrder(msgspec.Struct, frozen=True, array_like=True):
    """Import `path`, known as `fileloc` in the DAG folder `folder`, within `seconds`."""

    path: str
    folder: str
    fileloc: str
    seconds: float


class ParseResult(msgspec.Struct, frozen=True, array_like=True):
    """What the import gave: encoded DagSpecs, an error, or both. `dependencies` are relative to the DAG folder.

    A dependency that ends with a slash is a folder whose listing was read. `misses_module`: a module was not found, so
    that any new file may be the cure.
    """

    dags: tuple[bytes, ...] = ()
    error: str | None = None
    dependencies: tuple[str, ...] = ()
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    misses_module: bool = False


encode = msgspec.msgpack.Encoder().encode
decode_order = msgspec.msgpack.Decoder(ParseOrder).decode
decode_result = msgspec.msgpack.Decoder(ParseResult).decode
