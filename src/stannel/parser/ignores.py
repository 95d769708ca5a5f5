"""Ignore files: `.stannelignore` and `.airflowignore` keep files of the DAG folder from being taken for DAG files.

One pattern a line, as in `.gitignore`: `*`, `?`, `[...]` and `**`; a slash in front or within ties it to the ignore
file's folder, one at the end means folders only, `!` takes back, `#` is a comment. The last match decides.
"""

import contextlib
import re
from pathlib import Path

import msgspec

IGNORE_FILES = (".airflowignore", ".stannelignore")

_PIECES = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|\[!?\]?[^\]]*\]|\\.|.", re.DOTALL)
_WILD = {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class Rule(msgspec.Struct, frozen=True):
    """One line of an ignore file that lies in the folder `base`, which is empty or ends with a slash."""

    base: str
    regex: re.Pattern[str]
    folders_only: bool
    takes_back: bool

    def matches(self, path: str, is_folder: bool) -> bool:
        if self.folders_only and not is_folder:
            return False
        return path.startswith(self.base) and self.regex.fullmatch(path, len(self.base)) is not None


def rules_in(folder: Path, base: str) -> list[Rule]:
    """The rules of the ignore files in one folder, known as `base` below the DAG folder."""
    rules = []
    for name in IGNORE_FILES:
        with contextlib.suppress(OSError):
            lines = (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
            rules += [rule for line in lines if (rule := _rule(line, base)) is not None]
    return rules


def is_ignored(path: str, rules: list[Rule], *, is_folder: bool) -> bool:
    """Whether the last rule that speaks of this path (relative to the DAG folder) leaves it out."""
    for rule in reversed(rules):
        if rule.matches(path, is_folder):
            return not rule.takes_back
    return False


def _rule(line: str, base: str) -> Rule | None:
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    takes_back = text.startswith("!")
    pattern = text.removeprefix("!")
    folders_only = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    anchored = "/" in pattern
    regex = "".join(map(_translated, _PIECES.findall(pattern.removeprefix("/"))))
    try:
        compiled = re.compile(regex if anchored else f"(?:.*/)?{regex}", re.DOTALL)
    except re.error:
        return None
    return Rule(base, compiled, folders_only, takes_back)


def _translated(piece: str) -> str:
    if piece in _WILD:
        return _WILD[piece]
    if piece.startswith("[") and piece.endswith("]"):
        return piece.replace("\\", "\\\\").replace("[!", "[^", 1)
    return re.escape(piece.removeprefix("\\") or piece)
