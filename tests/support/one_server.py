"""Keeps tests that share a server in one process, so that a broker is started once and not once per process."""

from xdist.scheduler import LoadScopeScheduling

_FOLDER = "tests/messaging/"


class OneServerPerFile(LoadScopeScheduling):
    """Deals out tests one by one, but a file of tests of a broker as a whole."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if nodeid.startswith(_FOLDER) else nodeid
