"""Keeps secrets out of logs and of everything people are shown: whatever was added comes out as `***`."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"

# Shorter texts occur in ordinary words, and masking those would make a log unreadable.
MIN_LENGTH = 5
MIN_LINE_LENGTH = 8
MAX_DEPTH = 32

SENSITIVE_WORDS = frozenset(
    {
        "access_token",
        "api_key",
        "apikey",
        "authorization",
        "keyfile_dict",
        "passphrase",
        "passwd",
        "password",
        "private_key",
        "secret",
        "service_account",
        "token",
    }
)

_SEPARATORS = re.compile(r"[\W_]")


class SecretMask:
    """The secrets of one process. A text shorter than 5 characters, or of white space only, is never one of them."""

    def __init__(self, sensitive_names: Iterable[str] = ()) -> None:
        words = (_folded(word) for word in (*SENSITIVE_WORDS, *sensitive_names))
        self._words = frozenset(word for word in words if word)
        self._forms: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._lock = Lock()

    def is_sensitive_name(self, name: str) -> bool:
        """Whether the name contains a sensitive word, in any case and with any separators: `apiKey`, `api-key`."""
        folded = _folded(name)
        return any(word in folded for word in self._words)

    def add(self, value: Any, name: str | None = None) -> None:
        """Mask the texts in `value` from now on; under a name that is not sensitive, only those under keys that are."""
        forms = {form for secret in self._secrets(value, name) for form in _forms(secret)}
        with self._lock:
            if not forms <= self._forms:
                self._forms |= forms
                self._pattern = None

    def redact_text(self, text: str) -> str:
        """The text with `***` in place of every secret."""
        if not self._forms:
            return text
        pattern = self._pattern or self._recompiled()
        # Again until nothing is found: an inserted *** may complete a secret that itself holds asterisks.
        while pattern.search(text):
            text = _masked(text, pattern)
        return text

    def redact(self, value: Any, name: str | None = None) -> Any:
        """A copy in which every text is redacted, and everything under a sensitive name is `***` as a whole."""
        return self._redact(value, name, MAX_DEPTH)

    def _recompiled(self) -> re.Pattern[str]:
        with self._lock:
            self._pattern = _compiled(self._forms)
            return self._pattern

    def _redact(self, value: Any, name: str | None, depth: int) -> Any:
        if value is None or (isinstance(value, str) and not value):
            return value
        if depth == 0 or (name is not None and self.is_sensitive_name(name)):
            return MASK
        match value:
            case str():
                return self.redact_text(value)
            case Mapping():
                return {self._key(key): self._redact(item, _name(key), depth - 1) for key, item in value.items()}
            case list():
                return [self._redact(item, None, depth - 1) for item in value]
            case tuple():
                return tuple(self._redact(item, None, depth - 1) for item in value)
            case set() | frozenset():
                return {self._redact(item, None, depth - 1) for item in value}
            case _:
                return value

    def _key(self, key: Any) -> Any:
        return self.redact_text(key) if isinstance(key, str) else key

    def _secrets(self, value: Any, name: str | None, depth: int = MAX_DEPTH) -> Iterator[str]:
        if depth == 0:
            return
        is_secret = name is None or self.is_sensitive_name(name)
        match value:
            case str() if is_secret:
                yield value
            case bytes() if is_secret:
                yield value.decode(errors="backslashreplace")
            case Mapping():
                for key, item in value.items():
                    yield from self._secrets(item, None if is_secret else str(key), depth - 1)
            case list() | tuple() | set() | frozenset():
                for item in value:
                    yield from self._secrets(item, name, depth - 1)
            case _:
                return


def _folded(name: str) -> str:
    return _SEPARATORS.sub("", name.casefold())


def _name(key: Any) -> str | None:
    return key if isinstance(key, str) else None


def _forms(secret: str) -> Iterator[str]:
    """How a secret may appear in a text: as it is, and quoted the way URLs, JSON and Python quote."""
    for plain in _plain_forms(secret):
        yield plain
        yield quote(plain, errors="surrogatepass")
        yield quote(plain, safe="", errors="surrogatepass")
        yield quote_plus(plain, errors="surrogatepass")
        yield json.dumps(plain)[1:-1]
        yield json.dumps(plain, ensure_ascii=False)[1:-1]
        yield repr(plain)[1:-1]


def _plain_forms(secret: str) -> Iterator[str]:
    stripped = secret.strip()
    if stripped and len(secret) >= MIN_LENGTH:
        yield secret
    if len(stripped) >= MIN_LENGTH:
        yield stripped
    # A log is masked line by line, so a private key of many lines would otherwise never be found.
    lines = stripped.splitlines()
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= MIN_LINE_LENGTH)


def _compiled(forms: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    return re.compile("|".join(map(re.escape, longest_first)))


def _masked(text: str, pattern: re.Pattern[str]) -> str:
    """One `***` per stretch of overlapping secrets, so that the end of the second one does not show."""
    parts, shown_from, masked_to = [], 0, 0
    match = pattern.search(text)
    while match:
        if match.start() >= masked_to:
            parts += [text[shown_from : match.start()], MASK]
        masked_to = shown_from = max(masked_to, match.end())
        match = pattern.search(text, match.start() + 1)
    return "".join([*parts, text[shown_from:]])
