"""What DAG authors import. Names are loaded when they are first used, so that a small DAG file loads little."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stannel.model.dag import TriggerRule
    from stannel.model.states import RunState as DagRunState
    from stannel.model.states import TaskState as TaskInstanceState
    from stannel.sdk import exceptions, macros, operators, sensors, timetables, timezone
    from stannel.sdk.assets.decorator import asset
    from stannel.sdk.assets.definition import (
        Asset,
        AssetAccessControl,
        AssetAlias,
        AssetAll,
        AssetAny,
        AssetWatcher,
        Dataset,
        Metadata,
        Model,
    )
    from stannel.sdk.assets.schedule import AssetOrTimeSchedule
    from stannel.sdk.connection import BaseHook, Connection
    from stannel.sdk.context import Context, get_current_context
    from stannel.sdk.dags import DAG, dag
    from stannel.sdk.decorators import setup, task, teardown
    from stannel.sdk.groups import TaskGroup, task_group
    from stannel.sdk.mapped import MappedOperator
    from stannel.sdk.node import Label, chain, chain_linear, cross_downstream
    from stannel.sdk.operator import BaseOperator
    from stannel.sdk.operators.python import BaseBranchOperator
    from stannel.sdk.params import Param, ParamsDict
    from stannel.sdk.references import XComArg
    from stannel.sdk.resumable import ResumableJobMixin
    from stannel.sdk.sensors.base import BaseSensorOperator, PokeReturnValue
    from stannel.sdk.state_store import NEVER_EXPIRE
    from stannel.sdk.task_arguments import WeightRule
    from stannel.sdk.template_marks import LiteralValue as literal  # noqa: N813
    from stannel.sdk.timetables import (
        CronDataIntervalTimetable,
        CronTriggerTimetable,
        DeltaDataIntervalTimetable,
        DeltaTriggerTimetable,
    )
    from stannel.sdk.variable import Variable
    from stannel.sdk.waiting import all_of, any_of, keep, wait_for
    from stannel.triggers.base import StartTriggerArgs

# Where each public name lives; a module maps to itself.
_HOMES = {
    "Asset": "stannel.sdk.assets.definition",
    "AssetAccessControl": "stannel.sdk.assets.definition",
    "AssetAlias": "stannel.sdk.assets.definition",
    "AssetAll": "stannel.sdk.assets.definition",
    "AssetAny": "stannel.sdk.assets.definition",
    "AssetOrTimeSchedule": "stannel.sdk.assets.schedule",
    "AssetWatcher": "stannel.sdk.assets.definition",
    "BaseBranchOperator": "stannel.sdk.operators.python",
    "BaseHook": "stannel.sdk.connection",
    "BaseOperator": "stannel.sdk.operator",
    "BaseSensorOperator": "stannel.sdk.sensors.base",
    "Connection": "stannel.sdk.connection",
    "Context": "stannel.sdk.context",
    "CronDataIntervalTimetable": "stannel.sdk.timetables",
    "CronTriggerTimetable": "stannel.sdk.timetables",
    "DAG": "stannel.sdk.dags",
    "DagRunState": "stannel.model.states:RunState",
    "Dataset": "stannel.sdk.assets.definition",
    "DeltaDataIntervalTimetable": "stannel.sdk.timetables",
    "DeltaTriggerTimetable": "stannel.sdk.timetables",
    "Label": "stannel.sdk.node",
    "MappedOperator": "stannel.sdk.mapped",
    "Metadata": "stannel.sdk.assets.definition",
    "Model": "stannel.sdk.assets.definition",
    "NEVER_EXPIRE": "stannel.sdk.state_store",
    "Param": "stannel.sdk.params",
    "ParamsDict": "stannel.sdk.params",
    "PokeReturnValue": "stannel.sdk.sensors.base",
    "ResumableJobMixin": "stannel.sdk.resumable",
    "StartTriggerArgs": "stannel.triggers.base",
    "TaskGroup": "stannel.sdk.groups",
    "TaskInstanceState": "stannel.model.states:TaskState",
    "TriggerRule": "stannel.model.dag",
    "Variable": "stannel.sdk.variable",
    "WeightRule": "stannel.sdk.task_arguments",
    "XComArg": "stannel.sdk.references",
    "all_of": "stannel.sdk.waiting",
    "any_of": "stannel.sdk.waiting",
    "asset": "stannel.sdk.assets.decorator",
    "chain": "stannel.sdk.node",
    "chain_linear": "stannel.sdk.node",
    "cross_downstream": "stannel.sdk.node",
    "dag": "stannel.sdk.dags",
    "get_current_context": "stannel.sdk.context",
    "keep": "stannel.sdk.waiting",
    "literal": "stannel.sdk.template_marks:LiteralValue",
    "setup": "stannel.sdk.decorators",
    "task": "stannel.sdk.decorators",
    "task_group": "stannel.sdk.groups",
    "teardown": "stannel.sdk.decorators",
    "wait_for": "stannel.sdk.waiting",
}
_MODULES = ("exceptions", "macros", "operators", "sensors", "timetables", "timezone")

__all__ = [
    "DAG",
    "NEVER_EXPIRE",
    "Asset",
    "AssetAccessControl",
    "AssetAlias",
    "AssetAll",
    "AssetAny",
    "AssetOrTimeSchedule",
    "AssetWatcher",
    "BaseBranchOperator",
    "BaseHook",
    "BaseOperator",
    "BaseSensorOperator",
    "Connection",
    "Context",
    "CronDataIntervalTimetable",
    "CronTriggerTimetable",
    "DagRunState",
    "Dataset",
    "DeltaDataIntervalTimetable",
    "DeltaTriggerTimetable",
    "Label",
    "MappedOperator",
    "Metadata",
    "Model",
    "Param",
    "ParamsDict",
    "PokeReturnValue",
    "ResumableJobMixin",
    "StartTriggerArgs",
    "TaskGroup",
    "TaskInstanceState",
    "TriggerRule",
    "Variable",
    "WeightRule",
    "XComArg",
    "all_of",
    "any_of",
    "asset",
    "chain",
    "chain_linear",
    "cross_downstream",
    "dag",
    "exceptions",
    "get_current_context",
    "keep",
    "literal",
    "macros",
    "operators",
    "sensors",
    "setup",
    "task",
    "task_group",
    "teardown",
    "timetables",
    "timezone",
    "wait_for",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"stannel.sdk.{name}")
    if name not in _HOMES:
        raise AttributeError(f"stannel.sdk offers no {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(importlib.import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
