"""The reference page is the table of settings, nothing else."""

import re
from pathlib import Path

from stannel.settings import DECLARATIONS, load_settings
from stannel.settings.reference import settings_reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_the_reference_page_is_current():
    assert PAGE.read_text() == settings_reference(), (
        "run: python -m stannel.settings.reference > docs/reference/settings.md"
    )


def test_every_setting_has_a_row():
    page = settings_reference()
    assert [row.key for row in DECLARATIONS if f"| `{row.key}` |" not in page] == []


def test_the_example_on_the_page_works(tmp_path):
    example = re.search(r"```toml\n(.*?)```", settings_reference(), re.DOTALL)
    assert example
    (tmp_path / "stannel.toml").write_text(example[1])
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "database-address").write_text("postgresql://db/stannel\n")
    settings = load_settings(tmp_path, {})
    assert settings.warnings == ()
    assert settings.core.parallelism == 64
    assert settings.database.sql_alchemy_conn.reveal() == "postgresql://db/stannel"
