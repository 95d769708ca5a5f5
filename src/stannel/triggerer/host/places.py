"""Pure: whose code a file is, so that people are shown the lines that are theirs."""

import os
from pathlib import Path

_HOST = str(Path(__file__).resolve().parent) + os.sep
_ENGINE = str(Path(__file__).resolve().parents[2]) + os.sep
_STDLIB = str(Path(os.__file__).resolve().parent) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def is_hosts(file: str) -> bool:
    """The file belongs to the host itself."""
    return file.startswith(_HOST)


def is_foreign(file: str) -> bool:
    """The file belongs neither to Python nor to the engine."""
    return _is_installed(file) or not file.startswith((_STDLIB, _ENGINE, "<frozen"))


def is_authors(file: str) -> bool:
    """The file is not even that of an installed package."""
    return is_foreign(file) and not _is_installed(file)


def _is_installed(file: str) -> bool:
    return any(mark in file for mark in _INSTALLED)
