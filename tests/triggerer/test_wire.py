"""Both sides of a wire may speak at any time, and nobody waits for the other."""

import asyncio
import socket

from stannel.triggerer.wire import Wire


class Ends:
    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        self.heard = bytearray()
        self.is_over = asyncio.Event()
        self.more = asyncio.Event()
        self.wire = Wire(asyncio.get_running_loop(), ours.detach(), self.take, self.is_over.set)

    def take(self, data: bytes) -> None:
        self.heard += data
        self.more.set()

    async def until_heard(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.heard) < count:
                self.more.clear()
                await self.more.wait()


async def test_it_hears_while_megabytes_wait_to_be_sent() -> None:
    ends = Ends()
    ends.wire.send(b"x" * 5_000_000)
    ends.wire.send(b"y" * 1_000_000)
    ends.theirs.sendall(b"hello")
    await ends.until_heard(5)
    ends.theirs.setblocking(False)
    received, loop = bytearray(), asyncio.get_running_loop()
    async with asyncio.timeout(10):
        while len(received) < 6_000_000:
            received += await loop.sock_recv(ends.theirs, 1 << 20)
    assert received == b"x" * 5_000_000 + b"y" * 1_000_000
    ends.theirs.close()
    ends.wire.close()


async def test_a_paused_wire_hears_later_what_was_said() -> None:
    ends = Ends()
    ends.wire.pause()
    ends.theirs.sendall(b"early")
    await asyncio.sleep(0)
    assert not ends.heard
    ends.wire.resume()
    await ends.until_heard(5)
    ends.theirs.close()
    ends.wire.close()


async def test_the_last_words_are_heard_before_the_end() -> None:
    ends = Ends()
    ends.wire.pause()
    ends.theirs.sendall(b"goodbye")
    ends.theirs.close()
    ends.wire.drain()
    assert bytes(ends.heard) == b"goodbye"
    assert ends.is_over.is_set()
    assert not ends.wire.is_open


async def test_sending_to_one_who_left_is_no_error() -> None:
    ends = Ends()
    ends.theirs.close()
    ends.wire.send(b"anyone?")
    async with asyncio.timeout(10):
        await ends.is_over.wait()
    ends.wire.send(b"no one.")
    assert not ends.wire.is_open
