"""What authors' code learns from the environment: variables, connections, and the engine's defaults."""

import os

# The Airflow import shim adds its own prefix, so that existing deployments keep working.
_prefixes = ["STANNEL"]


def also_read(prefix: str) -> None:
    """Look for `<prefix>_VAR_*` and `<prefix>_CONN_*` too, after Stannel's own."""
    if prefix not in _prefixes:
        _prefixes.append(prefix)


def setting(name: str, fallback: str) -> str:
    """A setting of the engine that authors' defaults depend on; the engine gives it to every process it starts."""
    return os.environ.get(f"STANNEL__{name}") or fallback


def lookup(kind: str, name: str) -> str | None:
    """The value of `STANNEL_<kind>_<NAME>`. None: it is not set."""
    for prefix in _prefixes:
        value = os.environ.get(f"{prefix}_{kind}_{name.upper()}")
        if value is not None:
            return value
    return None
