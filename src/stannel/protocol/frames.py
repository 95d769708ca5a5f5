"""Cuts the byte stream into frames: four bytes of big-endian length, then that many bytes of payload."""

from collections.abc import Iterator

from stannel.protocol.errors import EmptyFrame, FrameTooLarge, MessageTooLarge

_HEADER = 4
LONGEST_FRAME = 2**32 - 1
# Large enough that an oversized value arrives whole and can be refused by name instead of by a broken connection.
DEFAULT_FRAME_LIMIT = 256 * 1024 * 1024


class Frames:
    """Bytes in, whole payloads out, however the stream was cut.

    Memory follows what has arrived, never what a length prefix promises.
    """

    def __init__(self, limit: int = DEFAULT_FRAME_LIMIT) -> None:
        self._limit = limit
        self._buffer = bytearray()

    @property
    def at_boundary(self) -> bool:
        """False: the stream stands in the middle of a frame; an end of file here cuts a message off."""
        return not self._buffer

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Take in `data` at once; iterate for the payloads it completed. A bad length stays an error for ever."""
        self._buffer += data
        return self._whole()

    def _whole(self) -> Iterator[bytes]:
        buffer = self._buffer
        while len(buffer) >= _HEADER:
            length = int.from_bytes(buffer[:_HEADER], "big")
            if length == 0:
                raise EmptyFrame
            if length > self._limit:
                raise FrameTooLarge(length, self._limit)
            end = _HEADER + length
            if len(buffer) < end:
                return
            # The view must be gone before the buffer shrinks, and spares the second copy of a large payload.
            with memoryview(buffer) as view:
                payload = bytes(view[_HEADER:end])
            del buffer[:end]
            yield payload


def encode_frame(payload: bytes, limit: int = LONGEST_FRAME, message: str = "the message") -> bytes:
    """The payload with its length in front. One that is too long is refused before anything is written."""
    length = len(payload)
    if length > min(limit, LONGEST_FRAME):
        raise MessageTooLarge(message, length, min(limit, LONGEST_FRAME))
    return length.to_bytes(_HEADER, "big") + payload
