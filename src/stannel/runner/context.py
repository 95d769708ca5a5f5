"""Builds the context of an attempt: one small function per variable, run when the variable is read."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stannel.model.state_store import TaskScope
from stannel.protocol.replies import StartupDetails
from stannel.protocol.requests import GetPrevSuccessfulDagRun, GetTICount
from stannel.runner.assets import InletEvents, OutletEvents, TriggeringAssetEvents
from stannel.sdk import comms, macros
from stannel.sdk.connection import Connection
from stannel.sdk.context import Context
from stannel.sdk.exceptions import AirflowNotFoundException
from stannel.sdk.notset import NOTSET
from stannel.sdk.params import ParamsDict
from stannel.sdk.state_store import TaskStateStore
from stannel.sdk.state_store_assets import AssetStateStores, has_assets
from stannel.sdk.variable import Variable


class VariableAccessor:
    """`var.value.name` and `var.json.name` in templates."""

    def __init__(self, deserialize_json: bool) -> None:
        self._deserialize_json = deserialize_json

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__"):
            raise AttributeError(key)
        return Variable.get(key, deserialize_json=self._deserialize_json)

    def get(self, key: str, default: Any = NOTSET, default_var: Any = NOTSET) -> Any:
        default = default_var if default is NOTSET else default
        return Variable.get(key, default=default, deserialize_json=self._deserialize_json)


class ConnectionAccessor:
    """`conn.name` in templates."""

    def __getattr__(self, conn_id: str) -> Connection:
        if conn_id.startswith("__"):
            raise AttributeError(conn_id)
        return Connection.get(conn_id)

    def get(self, conn_id: str, default_conn: Any = None) -> Any:
        try:
            return Connection.get(conn_id)
        except AirflowNotFoundException:
            return default_conn


class NoSettings:
    """`conf` in templates: a task process knows no settings of the engine."""

    def get(self, section: str, key: str, fallback: Any = None) -> Any:
        return fallback


def _moment(context: Context) -> Any:
    """What `ds` and `ts` are about; a run without a logical date is about the time it was to run after."""
    run = context["dag_run"]
    return run.logical_date or run.run_after


def _params(context: Context) -> dict[str, Any]:
    """The DAG's and the task's parameters with what the run was given, each checked against its schema."""
    task, run = context["task"], context["dag_run"]
    params = ParamsDict(task.dag.params)
    for name in task.params:
        params[name] = task.params.get_param(name)
    for name, value in (run.conf or {}).items():
        if name in params:
            declared = params.get_param(name)
            params[name] = type(declared)(value, declared.description, schema=declared.schema, source=declared.source)
        else:
            params[name] = value
    return params.validate()


def _previous(context: Context) -> Any:
    return comms.ask(GetPrevSuccessfulDagRun(context["ti"].id))


def _remembered_previous(field: str) -> Callable[[Context], Any]:
    def read(context: Context) -> Any:
        return getattr(context["_previous"], field)

    return read


def _instance_count(context: Context) -> int | None:
    ti = context["ti"]
    if not ti.is_mapped:
        return None
    return int(comms.ask(GetTICount(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id])).count)


def _instance_key(context: Context) -> str:
    ti = context["ti"]
    return f"{ti.dag_id}__{ti.task_id}__{context['ds_nodash']}"


def _task_state_store(context: Context) -> TaskStateStore:
    ti = context["ti"]
    return TaskStateStore(ti.id, TaskScope(ti.dag_id, ti.run_id, ti.task_id, ti.map_index))


class _Hidden(dict[str, Callable[[Context], Any]]):
    """Makers, with one shared by several variables that is not a variable itself."""

    def __missing__(self, key: str) -> Callable[[Context], Any]:
        if key == "_previous":
            return _previous
        raise KeyError(key)


MAKERS: Mapping[str, Callable[[Context], Any]] = _Hidden(
    {
        "conf": lambda context: NoSettings(),
        "conn": lambda context: ConnectionAccessor(),
        "dag": lambda context: context["task"].dag,
        "data_interval_end": lambda context: context["dag_run"].data_interval_end,
        "data_interval_start": lambda context: context["dag_run"].data_interval_start,
        "ds": lambda context: _moment(context).strftime("%Y-%m-%d"),
        "ds_nodash": lambda context: _moment(context).strftime("%Y%m%d"),
        "expanded_ti_count": _instance_count,
        "inlet_events": lambda context: InletEvents(context["task"].inlets),
        "inlets": lambda context: context["task"].inlets,
        "logical_date": lambda context: context["dag_run"].logical_date,
        "macros": lambda context: macros,
        "map_index_template": lambda context: context["task"].map_index_template,
        "outlet_events": lambda context: OutletEvents(context["task"].outlets),
        "outlets": lambda context: context["task"].outlets,
        "params": _params,
        "partition_date": lambda context: context["dag_run"].partition_date,
        "partition_key": lambda context: context["dag_run"].partition_key,
        "prev_data_interval_end_success": _remembered_previous("data_interval_end"),
        "prev_data_interval_start_success": _remembered_previous("data_interval_start"),
        "prev_end_date_success": _remembered_previous("end_date"),
        "prev_start_date_success": _remembered_previous("start_date"),
        "run_id": lambda context: context["ti"].run_id,
        "task_instance": lambda context: context["ti"],
        "task_state_store": _task_state_store,
        "task_store": lambda context: context["task_state_store"],
        "task_instance_key_str": _instance_key,
        "templates_dict": lambda context: None,
        "test_mode": lambda context: False,
        "triggering_asset_events": lambda context: TriggeringAssetEvents(context["dag_run"].consumed_asset_events),
        "ts": lambda context: _moment(context).isoformat(),
        "ts_nodash": lambda context: _moment(context).strftime("%Y%m%dT%H%M%S"),
        "ts_nodash_with_tz": lambda context: _moment(context).isoformat().replace("-", "").replace(":", ""),
        "var": lambda context: _Variables(),
    }
)


class _Variables:
    """`var` in templates."""

    def __init__(self) -> None:
        self.value = VariableAccessor(deserialize_json=False)
        self.json = VariableAccessor(deserialize_json=True)


def context_for(startup: StartupDetails, task: Any, ti: Any) -> Context:
    """The context of this attempt; nothing in it is computed or asked for yet."""
    run = startup.ti_context.dag_run
    if run.conf is None:
        run = msgspec.structs.replace(run, conf={})
        ti.dag_run = run
    context = Context(MAKERS, ti=ti, task=task, dag_run=run)
    # Not among the makers: for a task without assets there is no such key at all.
    if has_assets(task.inlets, task.outlets):
        context["asset_state_store"] = AssetStateStores(task.inlets, task.outlets)
    return context
