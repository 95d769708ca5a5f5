"""The programs' own log: one file and one form for all of them, so that their lines can be read together."""

import logging
from pathlib import Path

from stannel.settings import Settings

_FORM = "%(asctime)s %(levelname)s %(name)s[%(process)d] %(message)s"


def log_to(settings: Settings) -> Path:
    """Send this program's log into the file that is returned; the screen stays for people."""
    file = settings.logging.base_log_folder / "stannel.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=file, level=settings.logging.logging_level, format=_FORM)
    for part in settings.logging.namespace_levels.replace(",", " ").split():
        name, _, level = part.partition("=")
        logging.getLogger(name).setLevel(level or logging.INFO)
    return file
