"""Secrets at rest: values are encrypted with the newest key and can be read with any older one."""

import base64
import importlib
import os
from functools import cached_property
from pathlib import Path
from typing import Any

from stannel.errors import SecretUnreadable

_MARK = "fernet:"


class Vault:
    """Encrypts what goes into the store and decrypts what comes out of it."""

    def __init__(self, keys: str) -> None:
        self._keys = [key.strip() for key in keys.split(",") if key.strip()]

    # Loaded when the first secret is: it takes longer to import than most programs take to start.
    @cached_property
    def _library(self) -> Any:
        return importlib.import_module("cryptography.fernet")

    @cached_property
    def _fernet(self) -> Any:
        return self._library.MultiFernet([self._library.Fernet(key) for key in self._keys])

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


def keys_for(home: Path, configured: str) -> str:
    """The configured keys, or those of this home; a new home gets a key of its own, readable only by its user."""
    if configured:
        return configured
    file = home / "fernet.key"
    if not file.exists():
        home.mkdir(parents=True, exist_ok=True)
        fresh = home / f".fernet.key.{os.getpid()}"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(base64.urlsafe_b64encode(os.urandom(32)))
        # Two programs may start at once on an empty home; the first one's key stays.
        try:
            os.link(fresh, file)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return file.read_text()
