"""What the parser knows of each DAG file, and what a look at the folder changes about it."""

import contextlib
from collections.abc import Collection
from pathlib import Path
from time import time_ns

import msgspec

from stannel.parser.folder import Signature, fingerprint, may_hold_dags, python_files, signature


class Changes(msgspec.Struct, frozen=True):
    """Files to be imported, newest first, and files whose DAGs are gone."""

    stale: list[str]
    gone: list[str]


class Begun(msgspec.Struct, frozen=True):
    """The state of a file just before it is imported."""

    path: str
    content: str
    at_ns: int


class _Known:
    """One Python file. `seen`: how it and its dependencies looked. Without a `fingerprint` it is stale."""

    __slots__ = ("fingerprint", "last", "looks_like_dags", "misses_module", "seen", "signature")

    def __init__(self) -> None:
        self.signature: Signature = None
        self.looks_like_dags = False
        self.fingerprint = self.last = ""
        self.seen: dict[str, Signature] = {}
        self.misses_module = False


class Picture:
    """The folder as it was when last looked at. `stored` are the files that the store knows from earlier."""

    def __init__(self, folder: Path, stored: Collection[str]) -> None:
        self._folder = folder
        self._stored = set(stored)
        self._known: dict[str, _Known] = {}

    def look(self) -> Changes:
        """Compare the folder with what is known of it. A stale file stays so until `imported` is told of it."""
        found = python_files(self._folder)
        has_new_file = bool(found.keys() - self._known.keys())
        for path in self._known.keys() - found.keys():
            del self._known[path]
        for path, seen in found.items():
            self._update(path, seen)
        dag_files = {path for path, known in self._known.items() if known.looks_like_dags}
        stale = [path for path in dag_files if self._is_stale(path, has_new_file)]
        return Changes(
            sorted(stale, key=lambda path: (-self._written_at(path), path)), sorted(self._stored - dag_files)
        )

    def begin(self, path: str) -> Begun:
        """Remember what a file looks like before it is imported."""
        return Begun(path, fingerprint(self._folder, path, ()), time_ns())

    def imported(self, begun: Begun, dependencies: Collection[str], *, misses_module: bool = False) -> str:
        """Take note of an import; the fingerprint of what was imported. What changed meanwhile is stale again."""
        path = begun.path
        now = fingerprint(self._folder, path, dependencies)
        self._stored.add(path)
        known = self._known.get(path)
        if known is None:
            return now
        known.misses_module = misses_module
        known.seen = {each: signature(self._folder / each) for each in (path, *dependencies)}
        late = any(seen[0] > begun.at_ns for each, seen in known.seen.items() if seen and each != path)
        # A file that has its dependencies written anew by each import has settled when they say the same again.
        has_changed = fingerprint(self._folder, path, ()) != begun.content or (late and now != known.last)
        known.last = now
        known.fingerprint = "" if has_changed else now
        return now

    def doubt(self, path: str) -> None:
        """Take note that an import came to nothing: the file is stale."""
        if path in self._known:
            self._known[path].fingerprint = ""

    def removed(self, path: str) -> None:
        """Take note that the store has forgotten a file."""
        self._stored.discard(path)

    def _update(self, path: str, seen: Signature) -> None:
        known = self._known.setdefault(path, _Known())
        if known.signature == seen:
            return
        known.signature, known.looks_like_dags = seen, True
        # A file that cannot be read is imported all the same: that gives the error its author should see.
        with contextlib.suppress(OSError):
            known.looks_like_dags = may_hold_dags((self._folder / path).read_bytes())

    def _is_stale(self, path: str, has_new_file: bool) -> bool:
        known = self._known[path]
        if known.misses_module and has_new_file:
            known.fingerprint = ""
        if not known.fingerprint:
            return True
        now = {each: signature(self._folder / each) for each in known.seen}
        if now != known.seen:
            known.seen = now
            # A file may be written again, or touched, without being changed.
            if fingerprint(self._folder, path, now.keys() - {path}) != known.fingerprint:
                known.fingerprint = ""
        return not known.fingerprint

    def _written_at(self, path: str) -> int:
        seen = self._known[path].signature
        return seen[0] if seen else 0
