"""Tasks that run a bash command."""

import importlib
import os
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from stannel.sdk.exceptions import AirflowException, AirflowSkipException
from stannel.sdk.operator import BaseOperator


def shells() -> Any:
    """The module that runs commands; it is loaded on first use."""
    return importlib.import_module("stannel.sdk.shell")


class BashOperator(BaseOperator):
    """Runs a command (or a `.sh` template file); its output is logged and its last line becomes the XCom."""

    template_fields: Sequence[str] = ("bash_command", "env", "cwd")
    template_ext: Sequence[str] = (".sh", ".bash")
    ui_color = "#f0ede4"

    def __init__(
        self,
        *,
        bash_command: Any,
        env: dict[str, str] | None = None,
        append_env: bool = False,
        output_encoding: str = "utf-8",
        skip_on_exit_code: int | Container[int] | None = 99,
        cwd: str | None = None,
        output_processor: Callable[[str], Any] = lambda result: result,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.bash_command, self.env, self.append_env, self.cwd = bash_command, env, append_env, cwd
        self.output_encoding, self.output_processor = output_encoding, output_processor
        skip: Container[int] = () if skip_on_exit_code is None else skip_on_exit_code  # type: ignore[assignment]
        self.skip_on_exit_code = (skip,) if isinstance(skip, int) else skip
        self._shell = shells().Shell(self.log, output_encoding)

    def get_env(self, context: Any) -> dict[str, str]:
        """The command's environment: this process's own unless `env` replaces it, and what the run is called."""
        base = dict(os.environ) if self.env is None or self.append_env else {}
        return {**base, **run_environment(context), **(self.env or {})}

    def execute(self, context: Any) -> Any:
        if not isinstance(self.bash_command, str):
            raise AirflowException(f"bash_command must be a text, not {type(self.bash_command).__name__}.")
        with self._working_directory() as folder:
            code, last_line = self._shell.run(self.bash_command, folder, self.get_env(context))
        if code in self.skip_on_exit_code:
            raise AirflowSkipException(f"The command ended with exit code {code}; the task is skipped.")
        if code != 0:
            raise AirflowException(f"The command ended with exit code {code}.")
        return self.output_processor(last_line)

    @contextmanager
    def _working_directory(self) -> Iterator[str]:
        if self.cwd is None:
            with shells().TemporaryDirectory(prefix="stannel-") as folder:
                yield folder
        elif not os.path.isdir(self.cwd):
            raise AirflowException(f"The working directory {self.cwd!r} does not exist or is not a directory.")
        else:
            yield self.cwd

    def on_kill(self) -> None:
        self._shell.stop()


def run_environment(context: Any) -> dict[str, str]:
    """Who is running, as environment variables for programs a task starts."""
    ti, run = context["ti"], context["dag_run"]
    facts = {
        "DAG_ID": ti.dag_id,
        "TASK_ID": ti.task_id,
        "TRY_NUMBER": str(ti.try_number),
        "DAG_RUN_ID": ti.run_id,
        "DAG_OWNER": context["task"].owner,
    }
    if run.logical_date is not None:
        facts["LOGICAL_DATE"] = run.logical_date.isoformat()
    return {f"{prefix}_CTX_{name}": value for prefix in ("STANNEL", "AIRFLOW") for name, value in facts.items()}
