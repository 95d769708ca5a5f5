"""Which Airflow name is which Stannel object: one table, extended by every feature that adds a name.

A line is `module: where` for a whole namespace (the public names of a Stannel module), or
`module: {name: where}` with `where` as `package.module:attribute` (the attribute defaults to the name).
"""

from typing import TypeAlias

Names: TypeAlias = "dict[str, str]"

_PYTHON = {
    "PythonOperator": "stannel.sdk.operators.python",
    "BranchPythonOperator": "stannel.sdk.operators.python",
    "ShortCircuitOperator": "stannel.sdk.operators.python",
    "get_current_context": "stannel.sdk.context",
}
_BASH = {"BashOperator": "stannel.sdk.operators.bash"}
_EMPTY = {"EmptyOperator": "stannel.sdk.operators.empty"}
_TRIGGER = {"TriggerDagRunOperator": "stannel.sdk.operators.trigger_dagrun"}
_BRANCH = {"BaseBranchOperator": "stannel.sdk.operators.python"}
_EDGES = {
    "chain": "stannel.sdk.node",
    "chain_linear": "stannel.sdk.node",
    "cross_downstream": "stannel.sdk.node",
}
_OPERATOR = {"BaseOperator": "stannel.sdk.operator", **_EDGES}
_DECORATOR_BASES = {
    "DecoratedOperator": "stannel.sdk.decorators",
    "TaskDecorator": "stannel.sdk.decorators",
    "determine_kwargs": "stannel.sdk.operators.python",
    "get_unique_task_id": "stannel.sdk.decorators",
    "is_async_callable": "inspect:iscoroutinefunction",
    "task_decorator_factory": "stannel.sdk.decorators",
}
_NOTSET = {
    "NOTSET": "stannel.sdk.notset",
    "ArgNotSet": "stannel.sdk.notset",
    "SET_DURING_EXECUTION": "stannel.sdk.notset",
    "is_arg_set": "stannel.sdk.notset",
}
_CONTEXT = {
    "Context": "stannel.sdk.context",
    "context_merge": "stannel.sdk.context",
    "get_current_context": "stannel.sdk.context",
}
_PARAMS = {"Param": "stannel.sdk.params", "ParamsDict": "stannel.sdk.params", "DagParam": "stannel.sdk.references"}
_XCOM = {"XCom": "stannel.sdk.xcom", "BaseXCom": "stannel.sdk.xcom:XCom"}
_XCOM_ARG = {"XComArg": "stannel.sdk.references"}
_GROUP = {"TaskGroup": "stannel.sdk.groups", "task_group": "stannel.sdk.groups"}
_DAG = {"DAG": "stannel.sdk.dags", "dag": "stannel.sdk.dags"}
_HOOK = {"BaseHook": "stannel.sdk.connection"}
_CONF = {"conf": "stannel.compat.helpers", "AIRFLOW_HOME": "stannel.compat.helpers"}
_MODULE_LOADING = {
    "import_string": "stannel.compat.helpers",
    "is_valid_dotpath": "stannel.compat.helpers",
    "iter_namespace": "stannel.compat.helpers",
    "qualname": "stannel.compat.helpers",
}
_STATES = {
    "DagRunState": "stannel.model.states:RunState",
    "State": "stannel.compat.helpers",
    "TaskInstanceState": "stannel.model.states:TaskState",
}
_SENSOR_BASE = {
    "BaseSensorOperator": "stannel.sdk.sensors.base",
    "PokeReturnValue": "stannel.sdk.sensors.base",
    "poke_mode_only": "stannel.sdk.sensors.base",
}
_PYTHON_SENSOR = {"PythonSensor": "stannel.sdk.sensors.python"}
_BASH_SENSOR = {"BashSensor": "stannel.sdk.sensors.bash"}
_FILE_SENSOR = {"FileSensor": "stannel.sdk.sensors.filesystem"}
_TIME_SENSOR = dict.fromkeys(("TimeSensor", "TimeSensorAsync"), "stannel.sdk.sensors.temporal")
_DATE_TIME_SENSOR = dict.fromkeys(("DateTimeSensor", "DateTimeSensorAsync"), "stannel.sdk.sensors.temporal")
_TIME_DELTA_SENSOR = dict.fromkeys(
    ("TimeDeltaSensor", "TimeDeltaSensorAsync", "WaitSensor"), "stannel.sdk.sensors.temporal"
)
_WEEKDAY_SENSOR = {"DayOfWeekSensor": "stannel.sdk.sensors.temporal"}
_WEEKDAY = {"WeekDay": "stannel.sdk.sensors.temporal"}
_EXTERNAL_TASK = {
    "ExternalTaskMarker": "stannel.sdk.sensors.external_task",
    "ExternalTaskSensor": "stannel.sdk.sensors.external_task",
}
_TRIGGER_BASE = dict.fromkeys(
    (
        "BaseEventTrigger",
        "BaseTaskEndEvent",
        "BaseTrigger",
        "DiscrimatedTriggerEvent",
        "StartTriggerArgs",
        "TaskFailedEvent",
        "TaskFailureEvent",
        "TaskSkippedEvent",
        "TaskSuccessEvent",
        "TriggerEvent",
    ),
    "stannel.triggers.base",
)
_TEMPORAL_TRIGGERS = dict.fromkeys(("DateTimeTrigger", "TimeDeltaTrigger"), "stannel.triggers.temporal")
_FILE_TRIGGERS = dict.fromkeys(
    ("DirectoryFileDeleteTrigger", "FileDeleteTrigger", "FileTrigger"), "stannel.triggers.file"
)
_EXTERNAL_TASK_TRIGGERS = dict.fromkeys(("DagStateTrigger", "WorkflowTrigger"), "stannel.triggers.external_task")
_ASSETS = dict.fromkeys(
    (
        "Asset",
        "AssetAccessControl",
        "AssetAlias",
        "AssetAll",
        "AssetAny",
        "AssetNameRef",
        "AssetRef",
        "AssetUriRef",
        "AssetWatcher",
        "BaseAsset",
        "Dataset",
        "Model",
    ),
    "stannel.sdk.assets.definition",
)
_METADATA = {"Metadata": "stannel.sdk.assets.definition"}
_ASSET_OR_TIME = {"AssetOrTimeSchedule": "stannel.sdk.assets.schedule"}
_MASKING = {"mask_secret": "stannel.sdk.log"}
_SDK = "stannel.sdk"
_EXCEPTIONS = "stannel.sdk.exceptions"
_TIMEZONE = "stannel.sdk.timezone"

TABLE: "dict[str, str | Names]" = {
    "airflow": {
        "DAG": "stannel.sdk.dags",
        "XComArg": "stannel.sdk.references",
        "__version__": "stannel.compat.helpers:version",
    },
    "airflow.version": {"version": "stannel.compat.helpers"},
    "airflow.configuration": _CONF,
    "airflow.settings": {"AIRFLOW_HOME": "stannel.compat.helpers", "TIMEZONE": "stannel.sdk.timezone:utc"},
    "airflow.exceptions": _EXCEPTIONS,
    # --- the task SDK
    "airflow.sdk": _SDK,
    "airflow.sdk.configuration": _CONF,
    "airflow.sdk.exceptions": _EXCEPTIONS,
    "airflow.sdk.log": _MASKING,
    "airflow.sdk.state": "stannel.sdk.state",
    "airflow.sdk.timezone": _TIMEZONE,
    "airflow.sdk._shared.module_loading": _MODULE_LOADING,
    "airflow.sdk.bases.branch": _BRANCH,
    "airflow.sdk.bases.decorator": _DECORATOR_BASES,
    "airflow.sdk.bases.hook": _HOOK,
    "airflow.sdk.bases.operator": _OPERATOR,
    "airflow.sdk.bases.resumablejobmixin": {"ResumableJobMixin": "stannel.sdk.resumable"},
    "airflow.sdk.bases.sensor": _SENSOR_BASE,
    "airflow.sdk.bases.skipmixin": {"SkipMixin": "stannel.sdk.operator"},
    "airflow.sdk.bases.xcom": _XCOM,
    "airflow.sdk.definitions._internal.types": _NOTSET,
    "airflow.sdk.definitions.asset": {**_ASSETS, "AssetUniqueKey": "stannel.model.asset:AssetKey"},
    "airflow.sdk.definitions.asset.decorators": {"asset": "stannel.sdk.assets.decorator"},
    "airflow.sdk.definitions.asset.metadata": _METADATA,
    "airflow.sdk.definitions.connection": {"Connection": "stannel.sdk.connection"},
    "airflow.sdk.definitions.context": _CONTEXT,
    "airflow.sdk.definitions.dag": _DAG,
    "airflow.sdk.definitions.edges": {"Label": "stannel.sdk.node"},
    "airflow.sdk.definitions.mappedoperator": {"MappedOperator": "stannel.sdk.mapped"},
    "airflow.sdk.definitions.param": _PARAMS,
    "airflow.sdk.definitions.taskgroup": _GROUP,
    "airflow.sdk.definitions.template": {"literal": "stannel.sdk.template_marks:LiteralValue"},
    "airflow.sdk.definitions.variable": {"Variable": "stannel.sdk.variable"},
    "airflow.sdk.definitions.xcom_arg": _XCOM_ARG,
    "airflow.sdk.execution_time.context": {
        "NEVER_EXPIRE": "stannel.sdk.state_store",
        "context_to_airflow_vars": "stannel.sdk.operators.bash:run_environment",
    },
    "airflow.sdk.execution_time.xcom": _XCOM,
    # --- names from before the task SDK
    "airflow.assets": _ASSETS,
    "airflow.datasets": {
        "Dataset": "stannel.sdk.assets.definition",
        "DatasetAlias": "stannel.sdk.assets.definition:AssetAlias",
        "DatasetAll": "stannel.sdk.assets.definition:AssetAll",
        "DatasetAny": "stannel.sdk.assets.definition:AssetAny",
    },
    "airflow.datasets.metadata": _METADATA,
    "airflow.decorators": {
        **_DAG,
        "task": "stannel.sdk.decorators",
        "task_group": "stannel.sdk.groups",
        "setup": "stannel.sdk.decorators",
        "teardown": "stannel.sdk.decorators",
    },
    "airflow.decorators.base": _DECORATOR_BASES,
    "airflow.hooks.base": _HOOK,
    "airflow.models": {
        "BaseOperator": "stannel.sdk.operator",
        "Connection": "stannel.sdk.connection",
        "DAG": "stannel.sdk.dags",
        "DagRun": "stannel.protocol.data",
        "MappedOperator": "stannel.sdk.mapped",
        "Param": "stannel.sdk.params",
        "TaskInstance": "stannel.runner.task_instance:RuntimeTaskInstance",
        "Variable": "stannel.sdk.variable",
        "XCom": "stannel.sdk.xcom",
    },
    "airflow.models.baseoperator": _OPERATOR,
    "airflow.models.connection": {"Connection": "stannel.sdk.connection"},
    "airflow.models.dag": _DAG,
    "airflow.models.dagrun": {"DagRun": "stannel.protocol.data"},
    "airflow.models.mappedoperator": {"MappedOperator": "stannel.sdk.mapped"},
    "airflow.models.param": _PARAMS,
    "airflow.models.taskinstance": {"TaskInstance": "stannel.runner.task_instance:RuntimeTaskInstance"},
    "airflow.models.variable": {"Variable": "stannel.sdk.variable"},
    "airflow.models.xcom": {**_XCOM, "XCOM_RETURN_KEY": "stannel.sdk.references"},
    "airflow.models.xcom_arg": _XCOM_ARG,
    "airflow.operators.bash": _BASH,
    "airflow.operators.branch": _BRANCH,
    "airflow.operators.empty": _EMPTY,
    "airflow.operators.python": _PYTHON,
    "airflow.operators.trigger_dagrun": _TRIGGER,
    "airflow.sensors.base": _SENSOR_BASE,
    "airflow.sensors.bash": _BASH_SENSOR,
    "airflow.sensors.date_time": _DATE_TIME_SENSOR,
    "airflow.sensors.external_task": _EXTERNAL_TASK,
    "airflow.sensors.filesystem": _FILE_SENSOR,
    "airflow.sensors.python": _PYTHON_SENSOR,
    "airflow.sensors.time_delta": _TIME_DELTA_SENSOR,
    "airflow.sensors.time_sensor": _TIME_SENSOR,
    "airflow.sensors.weekday": _WEEKDAY_SENSOR,
    "airflow.timetables.assets": _ASSET_OR_TIME,
    "airflow.timetables.datasets": {"DatasetOrTimeSchedule": "stannel.sdk.assets.schedule:AssetOrTimeSchedule"},
    "airflow.timetables.base": {"Timetable": "stannel.sdk.timetables"},
    "airflow.timetables.interval": {
        "CronDataIntervalTimetable": "stannel.sdk.timetables",
        "DeltaDataIntervalTimetable": "stannel.sdk.timetables",
    },
    "airflow.timetables.trigger": {
        "CronTriggerTimetable": "stannel.sdk.timetables",
        "DeltaTriggerTimetable": "stannel.sdk.timetables",
    },
    "airflow.triggers.base": _TRIGGER_BASE,
    "airflow.triggers.callback": {"CallbackTrigger": "stannel.triggers.callback"},
    "airflow.triggers.external_task": _EXTERNAL_TASK_TRIGGERS,
    "airflow.triggers.file": _FILE_TRIGGERS,
    "airflow.triggers.shared_stream": dict.fromkeys(
        (
            "DEFAULT_ACK_TIMEOUT",
            "DEFAULT_SUBSCRIBER_QUEUE_MAX",
            "AckTimeout",
            "AdvanceItem",
            "AdvanceOutcome",
            "SharedStreamManager",
            "SharedStreamProducer",
            "reject_shared_stream_event",
        ),
        "stannel.triggers.shared_stream",
    ),
    "airflow.triggers.temporal": _TEMPORAL_TRIGGERS,
    "airflow.triggers.testing": dict.fromkeys(("FailureTrigger", "SuccessTrigger"), "stannel.triggers.testing"),
    "airflow.utils": {"yaml": "yaml:"},
    "airflow.utils.context": _CONTEXT,
    "airflow.utils.dates": {"days_ago": "stannel.compat.helpers"},
    "airflow.utils.decorators": {"apply_defaults": "stannel.compat.helpers"},
    "airflow.utils.edgemodifier": {"Label": "stannel.sdk.node"},
    "airflow.utils.hashlib_wrapper": {"md5": "stannel.compat.helpers"},
    "airflow.utils.helpers": {
        **_EDGES,
        "as_flattened_list": "stannel.compat.helpers",
        "chunks": "stannel.compat.helpers",
        "convert_camel_to_snake": "stannel.compat.helpers",
        "exactly_one": "stannel.compat.helpers",
        "merge_dicts": "stannel.compat.helpers",
        "prune_dict": "stannel.compat.helpers",
    },
    "airflow.utils.log.logging_mixin": {"LoggingMixin": "stannel.sdk.log"},
    "airflow.utils.log.secrets_masker": _MASKING,
    "airflow.utils.module_loading": _MODULE_LOADING,
    "airflow.utils.platform": {"getuser": "getpass:getuser"},
    "airflow.utils.process_utils": {"patch_environ": "stannel.compat.helpers"},
    "airflow.utils.state": _STATES,
    "airflow.utils.strings": {"to_boolean": "stannel.compat.helpers"},
    "airflow.utils.task_group": _GROUP,
    "airflow.utils.timezone": _TIMEZONE,
    "airflow.utils.trigger_rule": {"TriggerRule": "stannel.model.dag"},
    "airflow.utils.types": {"DagRunType": "stannel.model.run:RunType", **_NOTSET},
    "airflow.utils.weekday": _WEEKDAY,
    "airflow.utils.weight_rule": {"WeightRule": "stannel.sdk.task_arguments"},
    # --- what Airflow keeps in its standard provider
    "airflow.providers.standard.operators.bash": _BASH,
    "airflow.providers.standard.operators.branch": _BRANCH,
    "airflow.providers.standard.operators.empty": _EMPTY,
    "airflow.providers.standard.operators.python": _PYTHON,
    "airflow.providers.standard.operators.trigger_dagrun": _TRIGGER,
    "airflow.providers.standard.exceptions": dict.fromkeys(
        (
            "ExternalDagFailedError",
            "ExternalDagNotFoundError",
            "ExternalTaskFailedError",
            "ExternalTaskGroupFailedError",
            "ExternalTaskGroupNotFoundError",
            "ExternalTaskNotFoundError",
        ),
        "stannel.sdk.sensors.external_task",
    ),
    "airflow.providers.standard.sensors.bash": _BASH_SENSOR,
    "airflow.providers.standard.sensors.date_time": _DATE_TIME_SENSOR,
    "airflow.providers.standard.sensors.external_task": _EXTERNAL_TASK,
    "airflow.providers.standard.sensors.filesystem": _FILE_SENSOR,
    "airflow.providers.standard.sensors.python": _PYTHON_SENSOR,
    "airflow.providers.standard.sensors.time": _TIME_SENSOR,
    "airflow.providers.standard.sensors.time_delta": _TIME_DELTA_SENSOR,
    "airflow.providers.standard.sensors.weekday": _WEEKDAY_SENSOR,
    "airflow.providers.standard.triggers.external_task": _EXTERNAL_TASK_TRIGGERS,
    "airflow.providers.standard.triggers.file": _FILE_TRIGGERS,
    "airflow.providers.standard.triggers.temporal": _TEMPORAL_TRIGGERS,
    "airflow.providers.standard.utils.weekday": _WEEKDAY,
    "airflow.providers.http.triggers.http": dict.fromkeys(
        ("HttpEventTrigger", "HttpSensorTrigger", "HttpTrigger"), "stannel.triggers.http"
    ),
    "airflow.providers.http.sensors.http": {"HttpSensor": "stannel.sdk.sensors.http"},
    "airflow.providers.common.messaging.providers.base_provider": {"BaseMessageQueueProvider": "stannel.messaging"},
    "airflow.providers.common.messaging.triggers.msg_queue": {"MessageQueueTrigger": "stannel.messaging"},
    "airflow.providers.common.compat.assets": _ASSETS,
    "airflow.providers.common.compat.sdk": _SDK,
    "airflow.providers.common.compat.standard.operators": _PYTHON,
}

# Names that live in a namespace besides those of its Stannel module.
ALSO: "dict[str, Names]" = {
    "airflow.exceptions": {
        "AirflowDagCycleException": "stannel.errors:CycleFound",
        "DuplicateTaskIdFound": "stannel.errors:DuplicateTaskId",
    },
    "airflow.sdk": {"conf": "stannel.compat.helpers", **_XCOM},
    "airflow.providers.common.compat.sdk": {
        "conf": "stannel.compat.helpers",
        **_XCOM,
        **dict.fromkeys(
            (
                "AirflowException",
                "AirflowFailException",
                "AirflowNotFoundException",
                "AirflowOptionalProviderFeatureException",
                "AirflowRescheduleException",
                "AirflowSensorTimeout",
                "AirflowSkipException",
                "AirflowTaskTimeout",
                "TaskDeferralError",
                "TaskDeferralTimeout",
                "TaskDeferred",
            ),
            _EXCEPTIONS,
        ),
    },
}
