"""Schema migrations by Alembic; imported only when a database is older than this Stannel."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

_FOLDER = Path(__file__).parent / "migrations"


def upgrade(address: str, revision: str = "head") -> None:
    """Bring the database at this address to the revision."""
    command.upgrade(_config(address), revision)


def revisions() -> list[str]:
    """Every revision there is, oldest first."""
    script = ScriptDirectory.from_config(_config("sqlite://"))
    return [one.revision for one in reversed(list(script.walk_revisions()))]


def _config(address: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    url = address.replace("postgresql://", "postgresql+psycopg://", 1)
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config
