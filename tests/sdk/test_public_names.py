"""The front door: `from stannel.sdk import ...`."""

import subprocess
import sys

import pytest

from stannel import sdk


def test_every_public_name_exists() -> None:
    for name in sdk.__all__:
        assert getattr(sdk, name) is not None
    assert set(dir(sdk)) == set(sdk.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'Nothing'"):
        sdk.Nothing  # noqa: B018


def test_all_public_names_together_load_no_foreign_module_but_msgspec() -> None:
    script = (
        "import sys; before = set(sys.modules); from stannel.sdk import *\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new - sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    # msgspec uses typing_extensions where it is installed; the other is Python's own description of its build.
    foreign = {name for name in done.stdout.split() if not name.startswith("_sysconfigdata")} - {"typing_extensions"}
    assert foreign == {"stannel", "msgspec"}


def test_importing_the_package_alone_loads_nothing_else_of_it() -> None:
    script = "import sys, stannel.sdk; print(*sorted(name for name in sys.modules if name.startswith('stannel')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["stannel", "stannel.sdk"]
