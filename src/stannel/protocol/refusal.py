"""A request that gets an error for an answer."""

from typing import Any

from stannel.errors import StannelError
from stannel.protocol.schema import ErrorCode


class Refused(StannelError):
    """A request that is answered with an error. `in_body`: an expected one, such as a variable that does not exist."""

    def __init__(self, code: ErrorCode, detail: dict[str, Any] | None = None, *, in_body: bool = False) -> None:
        super().__init__(f"the request is refused with {code}")
        self.code, self.detail, self.in_body = code, detail, in_body
