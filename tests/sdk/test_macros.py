"""What templates find under `macros`."""

import subprocess
import sys

import pytest

from stannel.sdk import macros


def test_days_are_added_and_formatted():
    assert macros.ds_add("2024-02-28", 2) == "2024-03-01"
    assert macros.ds_format("2024-02-28", "%Y-%m-%d", "%d.%m.%Y") == "28.02.2024"


def test_chance_is_loaded_when_a_template_asks_for_it():
    program = "import sys\nfrom stannel.sdk import macros\nprint('random' in sys.modules, 0 <= macros.random() < 1)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_name_it_does_not_have_is_an_error():
    with pytest.raises(AttributeError, match="chance"):
        macros.chance  # noqa: B018
