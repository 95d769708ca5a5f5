"""A fake of Amazon SQS: moto's server speaks the protocol and keeps visibility times and redrive policies.

It is no Amazon: deleting by an outdated receipt removes the message there, which SQS does not promise.
"""

import contextlib
from collections.abc import Iterator

from moto.server import ThreadedMotoServer


@contextlib.contextmanager
def running_fake_sqs() -> Iterator[int]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield server.get_host_and_port()[1]
    finally:
        server.stop()
