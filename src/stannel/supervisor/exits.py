"""How a process ended, in words a person can act on."""

import os
import signal

import msgspec


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a process. `status` None: nobody was there to hear it. `refused`: it never started, and why."""

    status: int | None = None
    max_rss_kib: int = 0
    refused: str | None = None

    @property
    def is_clean(self) -> bool:
        return self.status == 0 and self.refused is None

    @property
    def is_killed(self) -> bool:
        """Whether SIGKILL ended it, which no process does to itself by accident."""
        return self.status is not None and os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL

    @property
    def words(self) -> str:
        """`exited with code 3`, `was killed by SIGKILL; ...`."""
        if self.refused is not None:
            return self.refused
        if self.status is None:
            return "ended, and its exit code is not known"
        if os.WIFSIGNALED(self.status):
            return _killed_by(os.WTERMSIG(self.status))
        code = os.WEXITSTATUS(self.status)
        # A shell that wraps the runtime reports a signal as 128 + its number.
        if code in (128 + signal.SIGKILL, 128 + signal.SIGTERM):
            return f"exited with code {code}: it {_killed_by(code - 128)}"
        return f"exited with code {code}"


def _killed_by(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    hint = "; often that means the machine ran out of memory" if number == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"
