"""A sensor that asks a bash command."""

import os
from collections.abc import Sequence
from typing import Any

from stannel.sdk.exceptions import AirflowFailException
from stannel.sdk.operators.bash import run_environment, shells
from stannel.sdk.sensors.base import BaseSensorOperator


class BashSensor(BaseSensorOperator):
    """Waits until the command ends with exit code 0.

    With `retry_exit_code` only that code means "not yet" and any other fails the task; without, every code does.
    """

    template_fields: Sequence[str] = ("bash_command", "env")
    template_ext: Sequence[str] = (".sh", ".bash")

    def __init__(
        self,
        *,
        bash_command: str,
        env: dict[str, str] | None = None,
        output_encoding: str = "utf-8",
        retry_exit_code: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.bash_command, self.env, self.output_encoding = bash_command, env, output_encoding
        self.retry_exit_code = retry_exit_code
        self._shell = shells().Shell(self.log, output_encoding)

    def poke(self, context: Any) -> bool:
        env = {**(os.environ if self.env is None else {}), **run_environment(context), **(self.env or {})}
        with shells().TemporaryDirectory(prefix="stannel-") as folder:
            code, _ = self._shell.run(self.bash_command, folder, env)
        if code not in (0, self.retry_exit_code) and self.retry_exit_code is not None:
            raise AirflowFailException(
                f"The command ended with exit code {code}; only {self.retry_exit_code} means that it is not yet time."
            )
        return bool(code == 0)

    def on_kill(self) -> None:
        self._shell.stop()
