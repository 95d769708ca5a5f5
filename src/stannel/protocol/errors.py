"""What can go wrong on the wire, each case with the data a supervisor needs to explain it."""

from typing import Any

from stannel.errors import ProtocolError, StannelError

_STEPS_SHOWN = 8


class ProtocolBroken(ProtocolError):
    """The byte stream can no longer be understood; nothing after this point can be trusted or answered."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; the connection cannot be used any more and the attempt ends")
        self.reason = reason


class EmptyFrame(ProtocolBroken):
    """A frame announced no payload at all."""

    def __init__(self) -> None:
        super().__init__("a frame of length zero arrived")


class FrameTooLarge(ProtocolBroken):
    """A frame announced more than this side accepts; nothing was allocated for it."""

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"a frame of {length} bytes was announced, the limit is {limit}")
        self.length, self.limit = length, limit


class Unsendable(StannelError):
    """A message cannot be put on the wire; nothing of it was sent and the connection stays usable."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(f"{message} cannot be sent: {reason}")
        self.message, self.reason = message, reason


class MessageTooLarge(Unsendable):
    """A message is longer than the peer accepts."""

    def __init__(self, message: str, length: int, limit: int) -> None:
        super().__init__(message, f"it has {length} bytes, the limit is {limit}")
        self.length, self.limit = length, limit


class NotJson(StannelError):
    """A value cannot be kept as JSON. `path` leads to the part that is in the way."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str | int] = []

    def __str__(self) -> str:
        return f"the value{self.where} {self.reason}"

    @property
    def where(self) -> str:
        """The path as authors write it: ` at ['rows'][3]`, or nothing for the value itself."""
        if not self.path:
            return ""
        steps = "".join(f"[{step!r}]" for step in self.path[:_STEPS_SHOWN])
        return f" at {steps}{'...' if len(self.path) > _STEPS_SHOWN else ''}"


class UnknownSchema(StannelError):
    """A runtime was built for a message schema this engine does not speak."""

    def __init__(self, version: object, known: tuple[str, ...]) -> None:
        super().__init__(
            f"message schema {version!r} is not known; this engine speaks {', '.join(known)}. "
            "Rebuild the runtime with an SDK for one of these, or update the engine"
        )
        self.version, self.known = version, known


class GreetingRefused(ProtocolError):
    """The first frame was not the description of a task; there is nothing to run."""

    def __init__(self, reason: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(f"the supervisor's greeting cannot be used: {reason}")
        self.reason, self.detail = reason, detail
