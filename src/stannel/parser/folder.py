"""The DAG folder on disk: which of its files may hold DAGs, and what they and the files they need look like now.

A file may hold DAGs if it is Python, not hidden, not ignored, and its text has the word "dag" and either "stannel" or
"airflow" in it, in any case. Everything else is never run.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from stannel.parser.ignores import Rule, is_ignored, rules_in

# When it was written, how long it is, and which file it is. None: there is no such file.
Signature = tuple[int, int, int] | None

_CACHE = "__pycache__"


def python_files(folder: Path) -> dict[str, Signature]:
    """Every Python file of the folder that is neither hidden nor ignored, by its path relative to the folder."""
    return dict(_walk(folder, "", [], frozenset()))


def _walk(
    folder: Path, base: str, rules: list[Rule], above: frozenset[tuple[int, int]]
) -> Iterator[tuple[str, Signature]]:
    try:
        here = os.stat(folder)
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    # A link to a folder further up would never come to an end.
    if (here.st_dev, here.st_ino) in above:
        return
    above |= {(here.st_dev, here.st_ino)}
    rules = rules + rules_in(folder, base)
    for entry in entries:
        path = f"{base}{entry.name}"
        if entry.name.startswith(".") or entry.name == _CACHE:
            continue
        is_folder = entry.is_dir()
        if (not is_folder and not entry.name.endswith(".py")) or is_ignored(path, rules, is_folder=is_folder):
            continue
        if is_folder:
            yield from _walk(Path(entry.path), f"{path}/", rules, above)
        elif (found := signature(entry.path)) is not None:
            yield path, found


def signature(path: str | Path) -> Signature:
    """What changes whenever a file's content does, without reading it."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def may_hold_dags(content: bytes) -> bool:
    """Whether the text mentions what every DAG file must."""
    text = content.lower()
    return b"dag" in text and (b"stannel" in text or b"airflow" in text)


def fingerprint(folder: Path, path: str, dependencies: Iterable[str]) -> str:
    """A digest of the file and of everything it needs; equal as long as importing it again cannot give anything new."""
    digest = hashlib.sha256()
    for each in [path, *sorted(dependencies)]:
        content = _content(folder / each, is_folder=each.endswith("/"))
        digest.update(f"{each}\0{'gone' if content is None else len(content)}\0".encode())
        digest.update(content or b"")
    return digest.hexdigest()


def _content(path: Path, *, is_folder: bool) -> bytes | None:
    try:
        if not is_folder:
            return path.read_bytes()
        names = sorted(name for name in os.listdir(path) if name != _CACHE and not name.startswith("."))
        return "\0".join(names).encode(errors="surrogateescape")
    except OSError:
        return None
