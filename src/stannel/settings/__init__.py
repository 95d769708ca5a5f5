"""What an operator may decide: one table of settings, read from `stannel.toml` and the environment."""

from stannel.settings.load import load_settings, stannel_home
from stannel.settings.secret import Secret
from stannel.settings.sections import DECLARATIONS, Declaration, Entry, Origin, Settings

__all__ = ["DECLARATIONS", "Declaration", "Entry", "Origin", "Secret", "Settings", "load_settings", "stannel_home"]
