"""An import's error as its author wants to read it: their own lines, without the machinery around them."""

import traceback
from collections.abc import Iterator
from pathlib import Path

_PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"
_LONGEST = 8000
_CUT = "\n  ...\n"


def own_traceback(error: BaseException) -> str:
    """The traceback without the frames of Stannel and of the import system; one too long loses its middle."""
    found = traceback.TracebackException.from_exception(error, compact=True)
    for each in _chained(found):
        each.stack[:] = [frame for frame in each.stack if not frame.filename.startswith((_PACKAGE, "<frozen "))]
    text = "".join(found.format()).rstrip()
    if len(text) > _LONGEST:
        half = (_LONGEST - len(_CUT)) // 2
        text = f"{text[:half]}{_CUT}{text[-half:]}"
    return text


def error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, what caused it, and what caused that."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def files_in_traceback(error: BaseException | None) -> set[str]:
    """The files that the error came through, the one that cannot be compiled included."""
    found = set()
    for each in error_chain(error):
        found |= {frame.f_code.co_filename for frame, _ in traceback.walk_tb(each.__traceback__)}
        if isinstance(each, SyntaxError) and each.filename:
            found.add(each.filename)
    return found


def _chained(found: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    yield found
    for each in (found.__cause__, found.__context__, *(getattr(found, "exceptions", None) or ())):
        if each is not None:
            yield from _chained(each)
