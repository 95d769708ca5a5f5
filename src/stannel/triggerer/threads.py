"""Threads for the verbs of the store, which is synchronous."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")

_THREADS = 4


class Threads:
    """A few threads: a batch of ends, a claim, a look at moments and the writing of logs may go on at the same time."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="triggerer-store")
        # Thousands of logs on a slow disk must not take the threads of those who are waited for.
        self._unhurried = ThreadPoolExecutor(1, thread_name_prefix="triggerer-logs")

    async def call(self, function: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Result:
        """Call a verb without holding up the loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def begin(self, function: Callable[[], None]) -> None:
        """Have it called soon; nobody waits for it."""
        self._unhurried.submit(function)

    def close(self) -> None:
        self._pool.shutdown()
        self._unhurried.shutdown()
