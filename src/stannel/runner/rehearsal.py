"""Plays an attempt before the first real one, so that every fork finds the runner's code already warmed up.

The interpreter rewrites code while it runs it the first few times. In a fork, each such write copies a page of memory
that it could have shared.
"""

import logging
import os
import socket
from datetime import UTC, datetime

from stannel.model.run import RunType
from stannel.model.states import RunState
from stannel.protocol.data import BundleInfo, DagRun, TaskInstance, TIRunContext
from stannel.protocol.replies import StartupDetails
from stannel.protocol.session import SupervisorSession
from stannel.runner.channel import SocketChannel
from stannel.runner.execute import execute
from stannel.runner.main import get_ready
from stannel.runner.records import JsonLines
from stannel.sdk import DAG, task

_log = logging.getLogger("stannel.runner")

# The interpreter specialises a function after eight calls.
_ROUNDS = 16
_NAME = "rehearsal"
_ID = "00000000-0000-7000-8000-000000000000"


def rehearse() -> None:
    """Run an attempt that does nothing a few times, in this process. If that fails, forks are slower, nothing else."""
    get_ready()
    handler = next(handler for handler in logging.root.handlers if isinstance(handler, JsonLines))
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    handler.fd = nowhere
    try:
        dags = {_NAME: _dag()}
        for _ in range(_ROUNDS):
            _play(dags)
    except Exception:  # noqa: BLE001 - whatever it is, real attempts will tell
        _log.warning("The rehearsal of a task process failed", exc_info=True)
    finally:
        handler.fd = -1
        os.close(nowhere)


def _play(dags: dict[str, DAG]) -> None:
    session = SupervisorSession()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(session.greet(_startup()))
        channel = SocketChannel(theirs.fileno())
        startup = channel.greeting()
        _log.info("Rehearsing %s", startup.ti.task_id)
        result = execute(startup, dags, channel)
        ours.sendall(session.reply(0))
        channel.last_request(result, patience=0.1)


def _dag() -> DAG:
    with DAG(_NAME, schedule=None) as dag:
        task(task_id=_NAME)(_nothing)()
    return dag


def _nothing() -> None:
    """The task of the rehearsal."""


def _startup() -> StartupDetails:
    now = datetime.now(UTC)
    ti = TaskInstance(id=_ID, task_id=_NAME, dag_id=_NAME, run_id=_NAME, try_number=1, dag_version_id=_ID)
    run = DagRun(
        dag_id=_NAME,
        run_id=_NAME,
        logical_date=now,
        data_interval_start=now,
        data_interval_end=now,
        run_after=now,
        start_date=now,
        end_date=None,
        run_type=RunType.MANUAL,
        state=RunState.RUNNING,
        consumed_asset_events=[],
        partition_key=None,
    )
    return StartupDetails(
        ti=ti,
        dag_rel_path="",
        bundle_info=BundleInfo(name=_NAME),
        start_date=now,
        ti_context=TIRunContext(dag_run=run, max_tries=0),
    )
