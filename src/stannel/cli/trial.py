"""Tries a DAG or a task out: the real engine, in a home and a store that are thrown away afterwards."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from stannel.cli.base import Refused, Session, say
from stannel.cli.engine import Engine
from stannel.cli.logs import LogTail, path_of, print_for_people, written_at
from stannel.cli.output import STYLES, console
from stannel.cli.tasks import label
from stannel.cli.trigger import create_manual_run
from stannel.cli.watch import Watching
from stannel.errors import UnknownId, closest
from stannel.executors.logfile import log_to
from stannel.model.dag import DagSpec, Retry, TaskSpec, TriggerRule
from stannel.model.plan import Expand, RunPlan
from stannel.model.run import Run, TaskInstance
from stannel.model.schedule import Never
from stannel.model.states import RunState, TaskState
from stannel.parser.loop import parse_once
from stannel.settings import Settings, load_settings
from stannel.settings.load import FILE_NAME
from stannel.store.dags import ParsedFile
from stannel.store.opening import open_store
from stannel.store.store import Store
from stannel.store.tasks import apply_plan

_STOP_SECONDS = 5.0


def test_dag(
    session: Session,
    *,
    dag_id: str,
    conf: Mapping[str, Any],
    logical_date: datetime | None,
    file: str | None,
    quiet: bool,
) -> bool:
    """Run a whole DAG, its logs on the screen. True: the run succeeded."""
    path = Path(file).absolute() if file else None
    with trial_store(session, path) as (store, settings):
        spec = read_dag(session, store, settings, dag_id, path)
        _put(store, session.now(), spec)
        run = create_manual_run(store, dag_id, now=session.now(), conf=conf, logical_date=logical_date)
        return _run_to_the_end(store, settings, run, show_logs=not quiet).state is RunState.SUCCESS


def test_task(
    session: Session,
    *,
    dag_id: str,
    task_id: str,
    map_index: int | None,
    logical_date: datetime | None,
    conf: Mapping[str, Any],
) -> bool:
    """Run one task as if nothing were before it, once. True: it succeeded, or skipped itself."""
    with trial_store(session, None) as (store, settings):
        spec = read_dag(session, store, settings, dag_id, None)
        task = spec.task(task_id)
        if task is None:
            raise UnknownId(f"task of {dag_id!r}", task_id, closest(task_id, [one.task_id for one in spec.tasks]))
        if (task.mapping is not None) != (map_index is not None):
            raise Refused(
                f"{task_id!r} is a mapped task; choose one of its instances with --map-index."
                if task.mapping is not None
                else f"{task_id!r} is not a mapped task; leave out --map-index."
            )
        _put(store, session.now(), msgspec.structs.replace(spec, tasks=(_alone(task),)))
        run = create_manual_run(store, dag_id, now=session.now(), conf=conf, logical_date=logical_date)
        if map_index is not None:
            _choose_instance(store, run, task_id, map_index, session.now())
        return _run_to_the_end(store, settings, run, show_logs=True).state is RunState.SUCCESS


@contextmanager
def trial_store(session: Session, file: Path | None) -> Iterator[tuple[Store, Settings]]:
    """A store of its own with the home's variables, connections and pools. Nothing of it is left afterwards."""
    home = Path(tempfile.mkdtemp(prefix="stannel-test-"))
    before = dict(os.environ)
    try:
        # Workers are processes of their own; they read the environment.
        os.environ.update(_environment(session.settings, home, file))
        settings = load_settings(home, os.environ)
        log_to(settings)
        store = open_store(settings)
        try:
            if session.has_store:
                _copy_entries(session.store, store)
            yield store, settings
        finally:
            store.close()
    finally:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(home, ignore_errors=True)


def _environment(settings: Settings, home: Path, file: Path | None) -> dict[str, str]:
    for name in (FILE_NAME, "secrets"):
        if (settings.home / name).exists():
            (home / name).symlink_to(settings.home / name)
    folder = settings.core.dags_folder
    if file is not None and not file.is_relative_to(folder):
        folder = file.parent
    return {
        "STANNEL_HOME": str(home),
        "STANNEL__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/stannel.db",
        "STANNEL__DATABASE__SQLITE_SYNCHRONOUS": "normal",
        "STANNEL__CORE__DAGS_FOLDER": str(folder),
        "STANNEL__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
    }


def _copy_entries(source: Store, target: Store) -> None:
    for variable in source.variables.all():
        target.variables.save(variable.key, variable.value, variable.description)
    for connection in source.connections.all():
        target.connections.save(connection)
    for pool in source.pools.all():
        target.pools.save(pool.name, pool.slots, pool.description, include_deferred=pool.include_deferred)


def read_dag(session: Session, store: Store, settings: Settings, dag_id: str, file: Path | None) -> DagSpec:
    """The DAG as its file says now: the given file, else the one it was last seen in, else all of the DAG folder."""
    folder = settings.core.dags_folder
    if file is not None:
        parse_once(store, settings, [file])
    elif (known := _last_seen_in(session, dag_id)) is not None and (folder / known).exists():
        parse_once(store, settings, [folder / known])
    if file is None and not _has(store, dag_id):
        parse_once(store, settings)
    if not _has(store, dag_id):
        for broken in store.dags.files():
            if broken.error:
                say(broken.error if broken.path in broken.error else f"{broken.path}: {broken.error}")
    return store.dags.spec(store.dags.get(dag_id).version)


def _last_seen_in(session: Session, dag_id: str) -> str | None:
    if not session.has_store:
        return None
    return next((one.fileloc for one in session.store.dags.all() if one.dag_id == dag_id), None)


def _has(store: Store, dag_id: str) -> bool:
    return any(one.dag_id == dag_id for one in store.dags.all())


def _put(store: Store, now: datetime, spec: DagSpec) -> None:
    """Leave this DAG as the only one, not paused, and without a schedule that would start runs of its own."""
    fileloc = store.dags.get(spec.dag_id).fileloc
    for other in store.dags.files():
        if other.path != fileloc:
            store.dags.remove_file(other.path)
    only = msgspec.structs.replace(spec, schedule=Never())
    store.dags.save_file(ParsedFile(path=fileloc, fingerprint="trial", dags=(only,)), now=now)
    store.dags.pause(spec.dag_id, paused=False)


def _alone(task: TaskSpec) -> TaskSpec:
    return msgspec.structs.replace(
        task,
        upstream=(),
        trigger_rule=TriggerRule.ALL_SUCCESS,
        retry=Retry(),
        depends_on_past=False,
        wait_for_downstream=False,
        mapping=None,
        is_teardown=False,
    )


def _choose_instance(store: Store, run: Run, task_id: str, map_index: int, now: datetime) -> None:
    """Give the run the instances up to the wanted one, and skip the others."""
    spec = store.dags.spec(run.version)
    placeholder = store.tasks.of_run(run)[0].pk
    with store.transaction() as tx:
        apply_plan(tx, run, spec, RunPlan(expand=[Expand(placeholder, task_id, map_index + 1)]), 0)
    others = [one.pk for one in store.tasks.of_run(run) if one.map_index != map_index]
    if others:
        store.tasks.set_state(run, others, TaskState.SKIPPED, now=now)


def _run_to_the_end(store: Store, settings: Settings, run: Run, *, show_logs: bool) -> Run:
    logs = TaskLogs(settings.logging.base_log_folder)
    engine = Engine(store, settings, parse=False)
    waits = Waits()

    def beside(current: Run, instances: list[TaskInstance], out: Console) -> None:
        if show_logs:
            logs.show(current, instances, out)
        waits.look(instances, out)

    engine.start()
    try:
        run = Watching(store, settings, beside=beside).watch(run)
    finally:
        engine.stop(patience=_STOP_SECONDS)
    if show_logs:
        logs.show(run, store.tasks.of_run(run), console())
    return run


class Waits:
    """The waits of a trial: each is told once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def look(self, instances: list[TaskInstance], out: Console) -> None:
        """Say of each task that waits that its trigger is run here."""
        for name in [label(one) for one in instances if one.state is TaskState.DEFERRED]:
            if name not in self._told:
                self._told.add(name)
                out.print(f"{name} is deferred; its trigger is run here until it fires", style=STYLES["deferred"])


class TaskLogs:
    """The logs of all tasks of a run, as they grow, each line under its task's name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tails: dict[tuple[int, int], LogTail] = {}

    def show(self, run: Run, instances: list[TaskInstance], out: Console) -> None:
        """Print what was written since the last call, in the order it was written."""
        fresh: list[tuple[str, str, str]] = []
        for one in instances:
            for number in range(1, one.try_number + 1):
                tail = self._tails.get((one.pk, number))
                if tail is None:
                    tail = self._tails[one.pk, number] = LogTail(path_of(self._folder, run, one, number))
                fresh += [(written_at(line), f"{label(one)} ", line) for line in tail.new_lines()]
        for _, name, line in sorted(fresh, key=itemgetter(0)):
            print_for_people([line], out, prefix=name)
