"""A sensor that waits for files."""

import glob
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from stannel.sdk.connection import Connection
from stannel.sdk.deferral import built_in
from stannel.sdk.exceptions import AirflowException, AirflowNotFoundException
from stannel.sdk.sensors.base import DeferrableSensor
from stannel.triggers.base import BaseTrigger, StartTriggerArgs

_DEFAULT_CONNECTION = "fs_default"


class FileSensor(DeferrableSensor):
    """Waits for a file, or for a folder with a file somewhere in it; `filepath` may be a glob, `recursive` for `**`.

    The connection `fs_conn_id` may say below which `path` it is; `fs_default` need not exist.
    """

    trigger_module = "file"
    template_fields: Sequence[str] = ("filepath",)

    def __init__(
        self,
        *,
        filepath: Any,
        fs_conn_id: str = _DEFAULT_CONNECTION,
        recursive: bool = False,
        start_from_trigger: bool = False,
        trigger_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.filepath, self.fs_conn_id, self.recursive = filepath, fs_conn_id, recursive
        self.start_from_trigger, self.trigger_kwargs = start_from_trigger, trigger_kwargs
        if start_from_trigger:
            self.start_trigger_args = self._start_args()

    def _start_args(self) -> StartTriggerArgs:
        filepath = self.filepath if isinstance(self.filepath, str | os.PathLike) else ""
        arguments = self.trigger_kwargs or {"filepath": os.fspath(filepath)}
        # Below a connection's path it could be anywhere, and connections are not read while files are.
        if not os.path.isabs(str(arguments.get("filepath", ""))):
            raise self.invalid("start_from_trigger needs a filepath that begins with /")
        return StartTriggerArgs(
            trigger_cls="stannel.triggers.file.FileTrigger",
            trigger_kwargs={"recursive": self.recursive, "poke_interval": self.poke_interval, **arguments},
            next_method="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

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

    def trigger_for(self, context: Any) -> BaseTrigger:
        trigger: BaseTrigger = built_in("file", "FileTrigger")(
            filepath=self.path, recursive=self.recursive, poke_interval=self.poke_interval
        )
        return trigger

    def execute_complete(self, context: Any, event: Any = None) -> None:
        """The file is there, unless the trigger says otherwise."""
        if not event:
            raise AirflowException(f"The wait for {self.filepath} ended without a file.")
        self.log.info("Found %s", self.filepath)

    def _base(self) -> str:
        try:
            return str(Connection.get(self.fs_conn_id).extra_dejson.get("path") or "")
        except AirflowNotFoundException:
            if self.fs_conn_id != _DEFAULT_CONNECTION:
                raise
            return ""


def _has_file(path: str) -> bool:
    return os.path.isfile(path) or any(files for _, _, files in os.walk(path))
