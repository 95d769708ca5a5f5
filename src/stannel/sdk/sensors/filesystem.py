"""A sensor that waits for files."""

import glob
import os
from collections.abc import Sequence
from typing import Any

from stannel.sdk.connection import Connection
from stannel.sdk.exceptions import AirflowNotFoundException
from stannel.sdk.sensors.base import BaseSensorOperator

_DEFAULT_CONNECTION = "fs_default"


class FileSensor(BaseSensorOperator):
    """Waits for a file, or for a folder with a file somewhere in it; `filepath` may be a glob, `recursive` for `**`.

    The connection `fs_conn_id` may say below which `path` it is; `fs_default` need not exist.
    """

    template_fields: Sequence[str] = ("filepath",)

    def __init__(
        self, *, filepath: Any, fs_conn_id: str = _DEFAULT_CONNECTION, recursive: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.filepath, self.fs_conn_id, self.recursive = filepath, fs_conn_id, recursive

    @property
    def path(self) -> str:
        """What is looked for, below the connection's path if it has one."""
        return os.path.join(self._base(), os.fspath(self.filepath))

    def poke(self, context: Any) -> bool:
        wanted = self.path
        self.log.info("Looking for %s", wanted)
        found = next(filter(_has_file, sorted(glob.glob(wanted, recursive=self.recursive))), None)
        if found is not None:
            self.log.info("Found %s", found)
        return found is not None

    def _base(self) -> str:
        try:
            return str(Connection.get(self.fs_conn_id).extra_dejson.get("path") or "")
        except AirflowNotFoundException:
            if self.fs_conn_id != _DEFAULT_CONNECTION:
                raise
            return ""


def _has_file(path: str) -> bool:
    return os.path.isfile(path) or any(files for _, _, files in os.walk(path))
