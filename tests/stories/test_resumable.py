"""Whoever dies at whatever step, an external job is submitted once, and what it gave comes back."""

import contextlib
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stories.deferral import engine_with, log_lines, xcom

from stannel.model.run import Run
from stannel.testing import Engine

# Jobs are lines of a file; an attempt kills itself before or after one of the things it does, the first time it comes
# there. What it does is what it asks the store and what it asks the other system.
JOBS = """
    import os, signal
    from datetime import timedelta
    from pathlib import Path
    from stannel.sdk import DAG, BaseOperator, ResumableJobMixin
    from stannel.triggers.temporal import TimeDeltaTrigger

    class Fuse:
        def __init__(self, context):
            conf = context["dag_run"].conf
            self.folder = Path(os.environ["STORY_NOTES"] + ".jobs", context["ti"].run_id)
            self.folder.mkdir(parents=True, exist_ok=True)
            self.met, self.can_blow = {}, context["ti"].try_number >= conf.get("least_try", 1)
            # One of them after the other, each in a try of its own.
            blown = len(list(self.folder.glob("blown-*")))
            self.mark = self.folder / f"blown-{blown}"
            self.point = [*conf["points"], [None] * 3][blown]

        def around(self, what, function, *args, **kwargs):
            number = self.met[what] = self.met.get(what, -1) + 1
            self.blow_at([what, number, "before"])
            result = function(*args, **kwargs)
            self.blow_at([what, number, "after"])
            return result

        def blow_at(self, point):
            if self.can_blow and point == self.point:
                self.mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    class Watched:
        def __init__(self, store, fuse):
            self._store, self._fuse = store, fuse

        def __getattr__(self, name):
            method = getattr(self._store, name)
            return lambda *args, **kwargs: self._fuse.around(name, method, *args, **kwargs)

    class Job(ResumableJobMixin, BaseOperator):
        def execute(self, context):
            return self.execute_resumable(self.watched(context))

        def watched(self, context):
            self.fuse = Fuse(context)
            context["task_state_store"] = Watched(context["task_state_store"], self.fuse)
            self.fails = context["dag_run"].conf.get("fails")
            return context

        def jobs(self):
            file = self.fuse.folder / "jobs"
            return file.read_text().split() if file.exists() else []

        def submit_job(self, context):
            return self.fuse.around("submit", self._submit)

        def _submit(self):
            with (self.fuse.folder / "jobs").open("a") as file:
                print(self.submission_token, file=file)
            return len(self.jobs()) - 1

        def get_job_status(self, external_id, context):
            return self.fuse.around("status", lambda: "FAILED" if self.fails and external_id == 0 else "RUNNING")

        def is_job_active(self, status): return status == "RUNNING"
        def is_job_succeeded(self, status): return status == "DONE"

        def poll_until_complete(self, external_id, context):
            self.fuse.around("poll", self._poll, external_id)

        def _poll(self, external_id):
            if self.fails and external_id == 0:
                raise RuntimeError("the job failed")

        def get_job_result(self, external_id, context):
            return self.fuse.around("result", lambda: f"result of {external_id}")

    class Findable(Job):
        def find_job(self, token, context):
            return self.fuse.around("find", lambda: self.jobs().index(token) if token in self.jobs() else None)

    class Async(Findable):
        async def execute(self, context):
            return await self.aexecute_resumable(self.watched(context))

    class Deferring(Findable):
        def execute(self, context):
            trigger = lambda external_id: TimeDeltaTrigger(timedelta(0))
            return self.defer_resumable(self.watched(context), trigger=trigger, method_name="end")

        def end(self, context, event, external_id):
            self.watched(context)
            return self.get_job_result(external_id, context)

    options = {"retries": 3, "retry_delay": timedelta(0)}
    for kind in (Job, Findable, Async, Deferring):
        with DAG(kind.__name__.lower(), schedule=None, max_active_runs=100):
            kind(task_id="job", **options)
"""

WHEN = ("before", "after")
# What a first try does, in order, and what the try after a failed job does.
FRESH = [("get", 0), ("get", 1), ("update", 0), ("submit", 0), ("set", 0), ("poll", 0), ("result", 0)]
AGAIN = [("get", 0), ("get", 1), ("status", 0), *FRESH[2:]]
WINDOW = {("submit", "after"), ("set", "before")}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("resumable")
    with engine_with(request, folder, {"jobs.py": JOBS}) as engine:
        yield engine


def jobs_of(engine: Engine, run: Run) -> list[str]:
    file = Path(f"{engine.environ['STORY_NOTES']}.jobs", run.run_id, "jobs")
    return file.read_text().split() if file.exists() else []


def kills(engine: Engine, run: Run) -> int:
    return len(list(Path(f"{engine.environ['STORY_NOTES']}.jobs", run.run_id).glob("blown-*")))


Point = tuple[str, int, str]


def begin(
    engine: Engine, dag_id: str, points: list[tuple[str, int]], first: tuple[Point, ...] = (), **conf: Any
) -> dict[Point, Run]:
    """A run for each point at which one of its tries dies; before that, others may die at the `first` points."""
    found = {}
    for (what, number), when in itertools.product(points, WHEN):
        run_id = f"{dag_id}-{what}-{number}-{when}-{conf.get('fails', '')}{len(first)}"
        given = {"points": [*first, (what, number, when)], **conf}
        found[what, number, when] = engine.trigger(dag_id, run_id=run_id, conf=given)
    return found


@pytest.mark.parametrize("kind", ["job", "findable", "async", "deferring"])
def test_a_try_may_be_killed_at_any_step(engine: Engine, kind: str) -> None:
    points = [one for one in FRESH if kind != "deferring" or one[0] != "poll"]
    for (what, _, when), run in begin(engine, kind, points).items():
        point = f"{kind} killed {when} {what}"
        assert engine.wait_for_run(run).state == "success", point
        assert kills(engine, run) == 1, f"{point}: nothing was killed"
        submitted = jobs_of(engine, run)
        assert len(submitted) == (2 if kind == "job" and (what, when) in WINDOW else 1), point
        assert len(set(submitted)) == 1, f"{point}: one token names all that one submission made"
        assert xcom(engine, run, "job") == f"result of {len(submitted) - 1}", point


@pytest.mark.parametrize("kind", ["job", "findable", "async"])
def test_the_try_after_a_failed_job_may_be_killed_at_any_step(engine: Engine, kind: str) -> None:
    for (what, _, when), run in begin(engine, kind, AGAIN, fails=True, least_try=2).items():
        point = f"{kind} killed {when} {what}"
        assert engine.wait_for_run(run).state == "success", point
        assert kills(engine, run) == 1, f"{point}: nothing was killed"
        submitted = jobs_of(engine, run)
        assert len(submitted) == (3 if kind == "job" and (what, when) in WINDOW else 2), point
        assert len(set(submitted)) == 2, f"{point}: the job that failed and the one after it have tokens of their own"
        assert xcom(engine, run, "job") == f"result of {len(submitted) - 1}", point


def test_the_search_for_a_job_that_was_not_noted_may_be_killed_at_any_step(engine: Engine) -> None:
    steps = [("get", 0), ("get", 1), ("find", 0), ("set", 0), ("status", 0), ("poll", 0), ("result", 0)]
    for point, run in begin(engine, "findable", steps, first=(("submit", 0, "after"),)).items():
        assert engine.wait_for_run(run).state == "success", point
        assert kills(engine, run) == 2, f"{point}: nothing was killed"
        assert len(jobs_of(engine, run)) == 1, point
        assert xcom(engine, run, "job") == "result of 0", point


def test_without_find_job_the_retry_says_that_there_may_be_two(engine: Engine) -> None:
    run = engine.trigger("job", run_id="says-so", conf={"points": [("submit", 0, "after")]})
    assert engine.wait_for_run(run).state == "success"
    assert any("there may be two" in str(line) for line in log_lines(engine, run, "job", 2))


# --- a real process ---------------------------------------------------------------------------------------------------

COMMAND = """
    from datetime import timedelta
    from stannel.sdk import DAG
    from stannel.sdk.operators import SubprocessJobOperator

    with DAG("command", schedule=None):
        SubprocessJobOperator(
            task_id="job",
            retries=5,
            retry_delay=timedelta(0),
            command="echo x >> $STORY_NOTES.effects; while [ ! -e $STORY_GATES/go ]; do sleep 0.05; done; echo done",
        )
"""


@pytest.mark.parametrize("database", [None], ids=["sqlite"])
def test_a_command_survives_the_death_of_the_whole_engine(
    sqlite_engine: Engine, tmp_path: Path, database: None
) -> None:
    engine = sqlite_engine
    gates, notes = tmp_path / "gates", tmp_path / "notes"
    gates.mkdir()
    engine.environ |= {"STORY_GATES": str(gates), "STORY_NOTES": str(notes)}
    engine.add_dag_file("command.py", COMMAND)
    engine.start()
    run = engine.trigger("command")
    effects = Path(f"{notes}.effects")
    engine.wait_until(effects.exists, seconds=30, what="the command did not begin")
    for pid in list(engine.processes()):
        with contextlib.suppress(OSError):
            is_job = b"STANNEL_JOB_TOKEN=" in Path(f"/proc/{pid}/environ").read_bytes()
            if not is_job:
                os.kill(pid, signal.SIGKILL)
    engine.start()
    engine.wait_until(
        lambda: engine.tasks(run)["job"].try_number > 1 and engine.states(run)["job"] == "running",
        seconds=30,
        what="the task was not tried again",
    )
    (gates / "go").touch()
    assert engine.wait_for_run(run).state == "success"
    assert xcom(engine, run, "job") == "done"
    assert effects.read_text() == "x\n"
