"""Tests that need a program of the machine ask for it here: its absence is one clear line, never a silent pass."""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

REQUIRE_VARIABLE = "STANNEL_TEST_REQUIRE"


def everything_is_required() -> bool:
    """True where a skipped test counts as a failed one, as in continuous integration."""
    return os.environ.get(REQUIRE_VARIABLE) == "all"


def missing(what: str) -> NoReturn:
    """Skip the calling test because `what` is not on this machine. With STANNEL_TEST_REQUIRE=all that is a failure."""
    pytest.skip(f"{what} is not installed; this test needs it")


def require(program: str) -> Path:
    """The path of `program`, which the calling test cannot do without."""
    found = shutil.which(program)
    return Path(found) if found else missing(program)
