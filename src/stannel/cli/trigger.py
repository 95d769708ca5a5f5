"""Makes a run by hand: checks its conf against the DAG's params, and says what it is about."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from stannel.cli.base import Refused
from stannel.errors import closest, did_you_mean
from stannel.model.dag import DagSpec, ParamSpec
from stannel.model.ids import run_id_for
from stannel.model.run import Run, RunType
from stannel.scheduler.timetables import interval_for_manual
from stannel.sdk.param_schema import problems
from stannel.store.runs import NewRun
from stannel.store.store import Store


def create_manual_run(
    store: Store,
    dag_id: str,
    *,
    now: datetime,
    conf: Mapping[str, Any],
    run_id: str | None = None,
    logical_date: datetime | None = None,
    run_after: datetime | None = None,
    note: str | None = None,
) -> Run:
    """A new run of a DAG's newest version; refused when the conf breaks the params or there is a run like it."""
    status = store.dags.get(dag_id)
    spec = store.dags.spec(status.version)
    if not status.is_active:
        raise Refused(f"The DAG {dag_id!r} is no longer in any file ({status.fileloc}); it cannot be run.")
    check_conf(spec, conf)
    moment = logical_date or now
    new = NewRun(
        run_id=run_id or run_id_for(RunType.MANUAL, moment),
        run_type=RunType.MANUAL,
        run_after=run_after or now,
        logical_date=moment,
        interval=interval_for_manual(spec, moment),
        conf=dict(conf),
        triggered_by="cli",
        note=note,
    )
    return store.runs.create(status.version, spec, new, now=now)


def check_conf(spec: DagSpec, conf: Mapping[str, Any]) -> None:
    """Refuse a conf that gives a param a value its schema does not allow, or leaves out one that has no default."""
    for name, param in spec.params.items():
        trouble = _trouble(name, param, conf)
        if trouble is not None:
            near = did_you_mean(closest(name, conf.keys() - spec.params.keys())) if name not in conf else ""
            raise Refused(f"The run was not made: the param {name!r} of {spec.dag_id!r} {trouble}{near or '.'}")


def _trouble(name: str, param: ParamSpec, conf: Mapping[str, Any]) -> str | None:
    if name in conf:
        found = next(problems(conf[name], param.schema), None)
        return f"cannot have this value: {found}" if found else None
    if not param.required:
        return None
    return f"has no default and was not given; use --conf '{{\"{name}\": ...}}'"
