"""What a broker's message looks like to triggers, whichever broker it came from."""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

_UNREAD: Any = object()


class Message:
    """A message as all triggers of a stream see it: it is decoded once, however many look at it.

    `about` is what the broker says beside the content: key, headers, where it was. It can be stored. `key` is what its
    events are grouped by.
    """

    __slots__ = ("_value", "about", "data", "key")

    def __init__(
        self, data: bytes | None, about: Mapping[str, Any], *, value: Any = _UNREAD, key: str | None = None
    ) -> None:
        self.data, self.about, self._value = data, about, value
        self.key = key

    @property
    def value(self) -> Any:
        """The content: what it says as JSON, else as text, else as base64 text. None: it has none."""
        if self._value is _UNREAD:
            self._value = decoded(self.data)
        return self._value

    def payload(self) -> dict[str, Any]:
        """The message as the payload of an event."""
        return {"value": self.value, **self.about}

    def __repr__(self) -> str:
        return f"Message({self.payload()!r})"


def decoded(data: bytes | None) -> Any:
    """JSON as what it says, other text as text, anything else as base64 text."""
    if data is None:
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return text_of(data)


def text_of(data: bytes | str | None) -> str | None:
    """The text of a key or a header; base64 if it is none."""
    if data is None or isinstance(data, str):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()
