"""Names and addresses of assets: what is allowed, and the one form in which an address is kept."""

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from stannel.sdk import building

_LONGEST = 1500
# An `@asset` function hands these to its author instead of an asset.
_RESERVED = frozenset({"self", "context"})


def checked_name(name: Any) -> str:
    """The name if an asset may have it; a `ValueError` says why not."""
    text = checked_text("name", name)
    if text in _RESERVED:
        raise ValueError(f"an asset cannot be named {text!r}: functions with @asset use that name for something else")
    return text


def checked_text(what: str, value: Any) -> str:
    """A text that is neither blank nor too long."""
    if not isinstance(value, str):
        raise TypeError(f"the {what} of an asset is a text, not {value!r}")
    if not value.strip():
        raise ValueError(f"the {what} of an asset cannot be empty or only white space")
    if len(value) > _LONGEST:
        raise ValueError(f"the {what} of an asset has at most {_LONGEST} characters, this one has {len(value)}")
    return value


def normalized(uri: Any) -> str:
    """The address in its one form; what does not look like an address, or is of a private `x-` kind, stays as it is."""
    text = checked_text("uri", uri if isinstance(uri, str) else _as_text(uri))
    parts = urlsplit(text)
    if not parts.scheme and not parts.netloc:
        return text
    scheme = parts.scheme.lower()
    if not scheme or scheme.startswith("x-"):
        return text
    if scheme == "airflow":
        raise ValueError(f"the scheme airflow is reserved, so {text!r} cannot be the uri of an asset")
    _, login, place = parts.netloc.rpartition("@")
    if login and parts.password:
        building.warn("an asset's uri must not hold a password; the login in it is left out, use a connection for it")
    query = urlencode(sorted(parse_qsl(parts.query, keep_blank_values=True)))
    return urlunsplit((scheme, place, parts.path.rstrip("/") or _root(parts.path, place), query, ""))


def _root(path: str, place: str) -> str:
    # An address without a host has nothing but its path.
    return "/" if path and not place else ""


def _as_text(uri: Any) -> Any:
    # Paths and object-storage paths describe themselves; anything else is refused by its type.
    return str(uri) if hasattr(uri, "__fspath__") or hasattr(uri, "as_uri") else uri
