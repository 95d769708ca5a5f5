"""A task whose command runs on its own: a worker that dies loses nothing, and the next try finds it again."""

import importlib
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from stannel.sdk.exceptions import AirflowException
from stannel.sdk.operator import BaseOperator
from stannel.sdk.operators.bash import run_environment
from stannel.sdk.resumable import ResumableJobMixin

_ELSEWHERE = "ON ANOTHER MACHINE"
_LONGEST_LOOK = 0.5


class SubprocessJobOperator(ResumableJobMixin, BaseOperator):
    """Runs a command as a detached process group; its output is logged and its last line becomes the XCom.

    The command is a text for the shell or a list of words. A retry on the same machine finds it, running or ended,
    although the worker and the whole engine died meanwhile; on another machine it fails rather than run it twice.
    """

    external_id_key = "subprocess_job"
    template_fields: Sequence[str] = ("command", "env", "cwd")
    ui_color = "#f0ede4"

    def __init__(
        self,
        *,
        command: str | Sequence[str],
        env: dict[str, str] | None = None,
        append_env: bool = True,
        cwd: str | None = None,
        jobs_folder: str | None = None,
        cancel_on_kill: bool = True,
        keep_jobs: timedelta = timedelta(days=7),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.command, self.env, self.append_env, self.cwd = command, env, append_env, cwd
        self.jobs_folder, self.cancel_on_kill, self.keep_jobs = jobs_folder, cancel_on_kill, keep_jobs

    def execute(self, context: Any) -> Any:
        return self.execute_resumable(context)

    def submit_job(self, context: Any) -> Any:
        _detached().forget_old_jobs(self._folder, seconds=self.keep_jobs.total_seconds())
        self._note_machine(context)
        token = str(self.submission_token)
        words = ["/bin/sh", "-c", self.command] if isinstance(self.command, str) else [str(one) for one in self.command]
        cwd = self.cwd or str(Path.home())
        if not os.path.isdir(cwd):
            raise AirflowException(f"The working directory {cwd!r} does not exist or is not a directory.")
        is_new = self._job(token).start(words, env=self._environment(context), cwd=cwd)
        self.log.info("%s the job %s in %s", "Started" if is_new else "Found", token, self._folder / token)
        return {"machine": os.uname().nodename, "job": token}

    def find_job(self, token: str, context: Any) -> Any:
        """The job of this token, if it was ever started here."""
        machine = context["task_state_store"].get(self._machine_key)
        if machine not in (None, os.uname().nodename):
            raise AirflowException(
                f"The job may run on {machine}, which cannot be asked from here. Nothing was started; give the task a "
                "queue that only that machine serves."
            )
        if self._job(token).status() == _detached().NEVER_STARTED:
            return None
        return {"machine": os.uname().nodename, "job": token}

    def get_job_status(self, external_id: Any, context: Any) -> str:
        if external_id["machine"] != os.uname().nodename:
            return _ELSEWHERE
        return str(self._job(external_id["job"]).status())

    def is_job_active(self, status: str) -> bool:
        return status == "RUNNING"

    def is_job_succeeded(self, status: str) -> bool:
        return status == "EXITED 0"

    def is_job_failed(self, status: str) -> bool:
        return status != _ELSEWHERE

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        job, seen, look, begun = self._job(external_id["job"]), 0, 0.0, b""
        while True:
            status = job.wait(look)
            printed = begun + job.output(seen)
            seen += len(printed) - len(begun)
            *lines, begun = printed.split(b"\n")
            for line in lines:
                self.log.info("%s", line.decode(errors="backslashreplace"))
            if status != "RUNNING":
                break
            look = min(look + 0.05, _LONGEST_LOOK)
        if begun:
            self.log.info("%s", begun.decode(errors="backslashreplace"))
        if not self.is_job_succeeded(status):
            raise AirflowException(f"The job {external_id['job']} ended: {status}.")

    def get_job_result(self, external_id: Any, context: Any) -> Any:
        lines = self._job(external_id["job"]).output().splitlines()
        return lines[-1].decode(errors="backslashreplace").rstrip() if lines else ""

    def on_kill(self) -> None:
        if self.cancel_on_kill and self.submission_token is not None:
            self._job(self.submission_token).stop()

    @property
    def _machine_key(self) -> str:
        return f"{self.external_id_key}/machine"

    def _note_machine(self, context: Any) -> None:
        # Before anything is started: whoever looks for the job must know where to look.
        if self.durable:
            context["task_state_store"].set(self._machine_key, os.uname().nodename)

    @property
    def _folder(self) -> Path:
        return Path(self.jobs_folder or Path(os.environ.get("STANNEL_HOME") or "~/.stannel", "jobs")).expanduser()

    def _job(self, token: str) -> Any:
        return _detached().Job(self._folder, token)

    def _environment(self, context: Any) -> dict[str, str]:
        base = dict(os.environ) if self.env is None or self.append_env else {}
        return {**base, **run_environment(context), **(self.env or {})}


def _detached() -> Any:
    """The module that starts processes; it is loaded on first use."""
    return importlib.import_module("stannel.sdk.detached")
