"""The reference page says what the program does."""

from pathlib import Path

from stannel.cli.main import COMMANDS
from stannel.cli.reference import cli_reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_page_is_current():
    assert PAGE.read_text() == cli_reference(), (
        "write it again: python -m stannel.cli.reference > docs/reference/cli.md"
    )


def test_every_command_has_a_heading():
    text = cli_reference()
    for name in (*COMMANDS, "dags trigger", "tasks logs", "db clean"):
        assert f"# stannel {name}\n" in text


def test_an_option_is_listed_with_its_meaning():
    assert "| `--timeout SECONDS` | Watch for so long at most." in cli_reference()
