"""Secrets at rest: values are encrypted with the newest key and can be read with any older one."""

import base64
import hmac
import importlib
import os
from functools import cached_property
from pathlib import Path
from typing import Any

from stannel.errors import SecretUnreadable

_MARK = "fernet:"


class Vault:
    """Encrypts what goes into the store and decrypts what comes out of it. Keys in a file may change at any time."""

    def __init__(self, keys: str | Path) -> None:
        self._source = keys
        # What the file was when it was read, and what was made of it: changed together, for many threads look.
        self._made: tuple[object, Any] | None = None

    # Loaded when the first secret is: it takes longer to import than most programs take to start.
    @cached_property
    def _library(self) -> Any:
        return importlib.import_module("cryptography.fernet")

    @property
    def _fernet(self) -> Any:
        made, stamp = self._made, self._stamp()
        # A key that is added to the file must not need a restart; a file that is gone takes no key away.
        if made is None or stamp not in (None, made[0]):
            keys = self._source.read_text() if isinstance(self._source, Path) else self._source
            made = self._made = (stamp, self._library.MultiFernet(list(map(self._library.Fernet, _split(keys)))))
        return made[1]

    def _stamp(self) -> object:
        try:
            found = self._source.stat() if isinstance(self._source, Path) else None
        except FileNotFoundError:
            return None
        return found and (found.st_ino, found.st_mtime_ns)

    def seal(self, value: str | None) -> str | None:
        if value is None:
            return None
        sealed: bytes = self._fernet.encrypt(value.encode())
        return _MARK + sealed.decode()

    def open(self, value: str | None, what: str) -> str | None:
        """The plain value; one sealed with a key that is not there any more is refused by name."""
        if value is None or not value.startswith(_MARK):
            return value
        try:
            plain: bytes = self._fernet.decrypt(value[len(_MARK) :])
            return plain.decode()
        except self._library.InvalidToken as error:
            raise SecretUnreadable(what) from error

    def open_foreign(self, value: str, what: str) -> str:
        """The text of a value that was encrypted elsewhere with one of our keys, unless it is plain JSON."""
        return value if value.startswith("{") else self.open(_MARK + value, what) or ""

    def digest(self, value: str) -> str:
        """A name by which equal values are known; it tells nothing about them to who has not the newest key."""
        keys = self._source.read_text() if isinstance(self._source, Path) else self._source
        return hmac.new(_split(keys)[0].encode(), value.encode(), "sha256").hexdigest()


def vault_for(home: Path, configured: str) -> Vault:
    """The vault with the configured keys, or with those of this home."""
    return Vault(configured or key_file(home))


def key_file(home: Path) -> Path:
    """Where a home keeps its keys; a new home gets a key of its own, readable only by its user."""
    file = home / "fernet.key"
    if not file.exists():
        home.mkdir(parents=True, exist_ok=True)
        fresh = _written_beside(file, _new_key())
        # Two programs may start at once on an empty home; the first one's key stays.
        try:
            os.link(fresh, file)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return file


def add_key(file: Path) -> None:
    """Put a new key in front of those in the file, all at once: nobody ever reads half a file."""
    _written_beside(file, f"{_new_key()},{file.read_text().strip()}").replace(file)


def _new_key() -> str:
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


def _written_beside(file: Path, text: str) -> Path:
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
        out.flush()
        # The key must not be lost once something is sealed with it.
        os.fsync(descriptor)
    return fresh


def _split(keys: str) -> list[str]:
    return [key.strip() for key in keys.split(",") if key.strip()]
