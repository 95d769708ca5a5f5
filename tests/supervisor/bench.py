"""What the tests of supervision work with: a desk in memory, attempts, and real fork servers."""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from stannel.model.run import Attempt, Outcome, Run, RunType
from stannel.model.states import RunState
from stannel.protocol import data
from stannel.protocol.replies import ConnectionResult, Reply, StartupDetails, VariableResult
from stannel.protocol.requests import GetConnection, GetVariable, Request
from stannel.supervisor.attempt import Supervision
from stannel.supervisor.desk import Limits
from stannel.supervisor.files import ForkLaunch, ForkSettings
from stannel.supervisor.tasklog import TaskLog

HERE = Path(__file__).parent
ENVIRON = {**os.environ, "PYTHONPATH": f"{HERE}", "STANNEL__DATABASE__SQL_ALCHEMY_CONN": "postgresql://u:p@h/d"}
BEGAN = datetime(2026, 11, 15, tzinfo=UTC)
ID = "0198f2c4-7c1e-7a55-9a3e-1d2f3a4b5c6d"
PATIENCE = 10.0


class MemoryDesk:
    """Answers from memory. `word` holds back the answer to the variable of that name until it is set."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.outcomes: list[Outcome] = []
        self.accepts = True
        self.failures: list[Exception] = []
        self.asked = asyncio.Event()
        self.word = asyncio.Event()
        self.finishing = asyncio.Event()
        self.finishing.set()

    async def answer(self, attempt: Attempt, request: Request) -> Reply | None:
        self.requests.append(request)
        self.asked.set()
        if self.failures:
            raise self.failures.pop(0)
        match request:
            case GetVariable("word"):
                await self.word.wait()
                return VariableResult("word", "go")
            case GetVariable("big"):
                return VariableResult("big", "x" * 100_000)
            case GetVariable(key):
                return VariableResult(key, "value")
            case GetConnection(conn_id):
                return ConnectionResult(
                    conn_id=conn_id,
                    conn_type="http",
                    host=None,
                    schema=None,
                    login=None,
                    password="open-sesame",
                    port=None,
                    extra=None,
                )
            case _:
                return None

    async def finish(self, attempt: Attempt, outcome: Outcome) -> bool:
        await self.finishing.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.outcomes.append(outcome)
        return self.accepts


class Bench:
    """Runs attempts, each as the kind of child its name says."""

    def __init__(self, launch: ForkLaunch, folder: Path) -> None:
        self.launch, self.folder = launch, folder
        self.desk = MemoryDesk()
        self.limits = Limits(
            timeout_slack=0, term_grace=0.2, overtime=0.2, drain=0.2, ack=0.5, report=1.0, frame_limit=1 << 20
        )
        self._runs = 0

    def supervision(self, kind: str, **fields: object) -> Supervision:
        self._runs += 1
        given = {"task_id": kind, "fileloc": str(self.folder / f"{kind}.py"), **fields}
        attempt = make_attempt(**given)
        return Supervision(
            attempt, greeting_for(attempt), self.launch, self.desk, TaskLog(self.log_path(self._runs)), self.limits
        )

    async def run(self, kind: str, **fields: object) -> Outcome:
        async with asyncio.timeout(PATIENCE):
            return await self.supervision(kind, **fields).run()

    def start(self, kind: str, **fields: object) -> tuple[Supervision, "asyncio.Task[Outcome]"]:
        supervision = self.supervision(kind, **fields)
        return supervision, asyncio.create_task(supervision.run())

    def log_path(self, number: int) -> Path:
        return self.folder / f"{number}.log"

    def log(self, number: int | None = None) -> list[dict[str, object]]:
        """The records of the last attempt's log, or of the given one."""
        path = self.log_path(number or self._runs)
        return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def events(self, logger: str, number: int | None = None) -> list[object]:
        return [record["event"] for record in self.log(number) if record["logger"] == logger]

    async def said(self, word: str, number: int | None = None) -> str:
        """The first line of output that contains the word, as soon as it is in the log."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for event in self.events("task.stdout", number):
                    if word in str(event):
                        return str(event)
                await asyncio.sleep(0.005)


def make_attempt(**fields: object) -> Attempt:
    run = Run(
        pk=1, dag_id="d", run_id="r", run_type=RunType.MANUAL, state=RunState.RUNNING, version="v", run_after=BEGAN
    )
    given = {"task_id": "t", "fileloc": "", "map_index": -1, "try_number": 1, "max_tries": 0, "start_date": BEGAN}
    return Attempt(**{"attempt_id": ID, "ti_pk": 1, "run": run, "queue": "default", **given, **fields})  # type: ignore[arg-type]


def greeting_for(attempt: Attempt) -> StartupDetails:
    run = data.DagRun(
        dag_id=attempt.dag_id,
        run_id=attempt.run_id,
        logical_date=BEGAN,
        data_interval_start=BEGAN,
        data_interval_end=BEGAN,
        run_after=BEGAN,
        start_date=BEGAN,
        end_date=None,
        run_type=RunType.MANUAL,
        state=RunState.RUNNING,
        consumed_asset_events=[],
        partition_key=None,
    )
    ti = data.TaskInstance(
        id=attempt.attempt_id,
        task_id=attempt.task_id,
        dag_id=attempt.dag_id,
        run_id=attempt.run_id,
        try_number=attempt.try_number,
        dag_version_id=ID,
    )
    return StartupDetails(
        ti=ti,
        dag_rel_path="dag.py",
        bundle_info=data.BundleInfo(name="dags"),
        start_date=BEGAN,
        ti_context=data.TIRunContext(dag_run=run, max_tries=0, should_retry=attempt.should_retry),
    )


def fork_settings(folder: Path, **changes: object) -> ForkSettings:
    settings = ForkSettings(
        dags_folder=folder,
        preload=("stannel.supervisor.fileserver", "children"),
        rehearsal="",
        environ=ENVIRON,
        target="children:act",
        loader="children:load",
    )
    return msgspec.structs.replace(settings, **changes)
