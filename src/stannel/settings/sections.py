"""The one table of settings: what exists, its type, its default and its meaning. Everything else reads it."""

from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from stannel.errors import UnknownId, closest
from stannel.settings.secret import Secret

MEBIBYTE = 1024 * 1024
HOME = "<home>"

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Each field is a setting; its annotation holds type, bounds and meaning. `<home>` in a default is the home."""


class CoordinatorSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one coordinator is built; `extra` is for other components and never reaches the class."""

    classpath: str
    kwargs: dict[str, Any] = {}
    extra: dict[str, Any] = {}


class Core(Section, frozen=True, kw_only=True):
    """Limits and defaults that hold for every DAG."""

    dags_folder: Annotated[Path, Meta(description="The folder that is watched for DAG files.")] = Path(HOME, "dags")
    executor: Annotated[str, Meta(description="Where tasks run: the name of an installed executor.")] = "local"
    parallelism: Annotated[
        Count, Meta(description="How many tasks may run at the same time for one scheduler, over all DAGs.")
    ] = 32
    max_active_tasks_per_dag: Annotated[
        Count, Meta(description="How many tasks of one run may run at once when the DAG does not say.")
    ] = 16
    max_active_runs_per_dag: Annotated[
        Count, Meta(description="How many runs of one DAG may be active at once when the DAG does not say.")
    ] = 16
    default_timezone: Annotated[
        ZoneInfo, Meta(description="The time zone of dates that name none: `utc` or a name such as `Europe/Berlin`.")
    ] = ZoneInfo("UTC")
    dags_are_paused_at_creation: Annotated[
        bool,
        Meta(description="Whether a new DAG waits to be unpaused; unlike in Airflow it runs as soon as it appears."),
    ] = False
    dagbag_import_timeout: Annotated[
        Seconds, Meta(description="Seconds a DAG file may take to be imported before it counts as broken.")
    ] = 30.0
    default_task_retries: Annotated[
        int, Meta(ge=0, description="How often a failed task is tried again when it does not say.")
    ] = 0
    default_task_retry_delay: Annotated[
        float, Meta(ge=0, description="Seconds between two attempts when the task does not say.")
    ] = 300.0
    default_task_execution_timeout: Annotated[
        Seconds | None,
        Meta(description="Seconds a task may run when it does not say; empty means as long as it likes."),
    ] = None
    default_pool_task_slot_count: Annotated[
        int, Meta(ge=0, description="How many slots `default_pool` has when the database is created.")
    ] = 128
    max_map_length: Annotated[
        Count, Meta(description="Into how many task instances one mapped task may expand; a longer list fails it.")
    ] = 1024
    xcom_max_size: Annotated[
        Count, Meta(description="Bytes one XCom value may take when encoded; a larger one fails its task.")
    ] = 64 * MEBIBYTE
    killed_task_cleanup_time: Annotated[
        float, Meta(ge=0, description="Seconds between asking a task to stop (SIGTERM) and killing it (SIGKILL).")
    ] = 60.0
    task_success_overtime: Annotated[
        float, Meta(ge=0, description="Seconds a task's process may linger after it reported its result.")
    ] = 20.0
    hostname: Annotated[
        str, Meta(description="The name by which this machine is shown; empty means the one it gives itself.")
    ] = ""
    fernet_key: Annotated[
        Secret,
        Meta(
            description="Keys that encrypt connections and variables, newest first, separated by commas; "
            "empty means the key in `<home>/fernet.key`, which is made when it is first needed."
        ),
    ] = Secret("")
    sensitive_var_conn_names: Annotated[
        tuple[str, ...],
        Meta(description="Words that make a variable or connection field secret, beside `password`, `token` and such."),
    ] = ()


class Database(Section, frozen=True, kw_only=True):
    """Where everything is remembered."""

    sql_alchemy_conn: Annotated[
        Secret, Meta(description="The address of the database: `sqlite:///...` or `postgresql://...`.")
    ] = Secret(f"sqlite:///{HOME}/stannel.db")
    sqlite_synchronous: Annotated[
        Literal["full", "normal"],
        Meta(description="`full` survives a power cut; `normal` is faster and may then lose the last moments."),
    ] = "full"
    pool_size: Annotated[Count, Meta(description="How many connections a process keeps open to PostgreSQL.")] = 5


class Scheduler(Section, frozen=True, kw_only=True):
    """When runs are made and tasks are handed out."""

    scheduler_heartbeat_sec: Annotated[
        Seconds, Meta(description="Seconds between two signs of life, each of which renews the leases.")
    ] = 1.0
    lease_seconds: Annotated[
        Seconds, Meta(description="Seconds after its last sign of life at which a process counts as lost.")
    ] = 3.0
    sweep_interval: Annotated[
        Seconds, Meta(description="Seconds between two looks at the whole store, in case a wake-up call was missed.")
    ] = 10.0
    max_tis_per_query: Annotated[Count, Meta(description="How many task instances one statement handles.")] = 512
    catchup_by_default: Annotated[
        bool, Meta(description="Whether runs missed in the past are made up for when the DAG does not say.")
    ] = False
    max_dagruns_to_create_per_loop: Annotated[
        Count, Meta(description="How many DAGs receive a new run before running ones are looked at again.")
    ] = 10


class DagProcessor(Section, frozen=True, kw_only=True):
    """How DAG files are read."""

    parsing_processes: Annotated[Count, Meta(description="How many DAG files are imported at the same time.")] = 2
    refresh_interval: Annotated[
        Seconds, Meta(description="Seconds between two looks at the whole folder, in case a change was not noticed.")
    ] = 30.0
    dag_file_processor_timeout: Annotated[
        Seconds, Meta(description="Seconds after which a process that reads a DAG file is killed, whatever it does.")
    ] = 50.0


class Logging(Section, frozen=True, kw_only=True):
    """What is written down, and where."""

    base_log_folder: Annotated[Path, Meta(description="The folder that holds the logs of tasks.")] = Path(HOME, "logs")
    logging_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], Meta(description="The least level that is written.")
    ] = "INFO"
    namespace_levels: Annotated[
        str, Meta(description="Levels of single loggers, such as `sqlalchemy=INFO botocore=WARNING`.")
    ] = ""


class Workers(Section, frozen=True, kw_only=True):
    """How the process of a task is started and watched."""

    fork_servers: Annotated[Count, Meta(description="How many DAG files stay loaded, ready to start a task.")] = 8
    frame_limit: Annotated[Count, Meta(description="Bytes one message between a task and its supervisor may have.")] = (
        128 * MEBIBYTE
    )
    state_store_backend: Annotated[
        str,
        Meta(
            description="The class that keeps the values of state stores where tasks run, so that the engine keeps "
            "only references: a subclass of `BaseStoreBackend`."
        ),
    ] = ""


class StateStore(Section, frozen=True, kw_only=True):
    """What task instances and assets keep for themselves."""

    backend: Annotated[
        str, Meta(description="The class that keeps state instead of the database: a subclass of `BaseStoreBackend`.")
    ] = ""
    clear_on_success: Annotated[
        bool, Meta(description="Whether a task instance's keys are deleted in the moment in which it succeeds.")
    ] = False
    default_retention_days: Annotated[
        int, Meta(ge=0, description="Days after which a task's keys expire when it does not say; 0 means never.")
    ] = 30
    state_cleanup_batch_size: Annotated[
        int, Meta(ge=0, description="How many expired keys are deleted at a time; 0 means 1000.")
    ] = 0
    max_value_storage_bytes: Annotated[
        int, Meta(ge=0, description="Bytes one value may take as JSON; a larger one is refused. 0 means any size.")
    ] = 65535


class Sensors(Section, frozen=True, kw_only=True):
    """Tasks that wait until something is true."""

    default_timeout: Annotated[
        float, Meta(ge=0, description="Seconds a sensor waits before it gives up when it does not say.")
    ] = 604800.0


class Operators(Section, frozen=True, kw_only=True):
    """What operators do when their author does not say."""

    default_deferrable: Annotated[
        bool, Meta(description="Whether operators that can defer do so when the task does not say.")
    ] = False
    default_queue: Annotated[str, Meta(description="The queue of tasks that name none.")] = "default"


class Triggerer(Section, frozen=True, kw_only=True):
    """Where triggers run while their tasks wait."""

    capacity: Annotated[
        Count, Meta(description="How many triggers one triggerer runs at once; more wait for their turn.")
    ] = 1000
    queues_enabled: Annotated[
        bool, Meta(description="Whether triggers go to triggerers that serve the queue of their task.")
    ] = False
    job_heartbeat_sec: Annotated[
        Seconds,
        Meta(
            description="Seconds between two signs of life; after 2.1 times as long without one, "
            "others take the triggers over."
        ),
    ] = 0.7
    on_kill_timeout: Annotated[
        Seconds, Meta(description="Seconds the `on_kill` of a trigger may take when a person ends its task.")
    ] = 30.0
    cancel_grace: Annotated[
        Seconds, Meta(description="Seconds a trigger that is told to stop may take before it counts as stuck.")
    ] = 5.0
    blocked_main_thread_warning_threshold: Annotated[
        Seconds,
        Meta(description="Seconds a trigger may hold up the others before its log names the line that does it."),
    ] = 0.2
    blocked_quarantine_threshold: Annotated[
        Seconds,
        Meta(description="Seconds a trigger may hold up the others before it is moved to a process of its own."),
    ] = 2.0
    runner_health_check_threshold: Annotated[
        Seconds, Meta(description="Seconds of silence after which a process that runs triggers is replaced.")
    ] = 5.0
    quarantine_hosts: Annotated[
        int, Meta(ge=0, description="How many triggers that hold up others may have a process of their own.")
    ] = 8
    host_memory_limit_mb: Annotated[
        Count, Meta(description="Mebibytes a process that runs triggers may use before it is replaced.")
    ] = 2048
    host_idle_seconds: Annotated[
        Seconds, Meta(description="Seconds a process that runs triggers is kept when it has none to run.")
    ] = 60.0
    shared_stream_subscriber_queue_size: Annotated[
        Count, Meta(description="How many events of a shared stream wait for a trigger that is slower than the others.")
    ] = 1024
    shared_stream_overflow: Annotated[
        Literal["fail", "block"],
        Meta(description="What happens when more wait for one: it fails and begins anew, or all wait for it."),
    ] = "fail"
    shared_stream_ack_timeout: Annotated[
        Seconds,
        Meta(description="Seconds a trigger may take for an event of a shared stream before it has failed on it."),
    ] = 300.0
    shared_stream_cohort_grace_period: Annotated[
        float, Meta(ge=0, description="Seconds a shared stream waits for further triggers before it is opened.")
    ] = 0.0
    watcher_backoff_max: Annotated[
        Seconds, Meta(description="The longest pause, in seconds, before a watcher that fails is tried again.")
    ] = 60.0
    watcher_repeats: Annotated[
        Count,
        Meta(
            description="How often in a row a watcher may fire the same at once after it was started again; "
            "one that goes on is held back, and reported."
        ),
    ] = 5


class Sdk(Section, frozen=True, kw_only=True):
    """Tasks in other languages."""

    coordinators: Annotated[
        dict[str, CoordinatorSpec], Meta(description="By name: the `classpath` and `kwargs` of each coordinator.")
    ] = {}
    queue_to_coordinator: Annotated[
        dict[str, str], Meta(description="Which queue's tasks which coordinator runs; other queues run Python.")
    ] = {}


class Origin(msgspec.Struct, frozen=True):
    """Where a value came from: a place such as `stannel.toml:12` or an environment variable's name."""

    kind: Literal["default", "file", "environment", "command", "secret"]
    where: str = ""

    def __str__(self) -> str:
        prefix = {"command": "output of ", "secret": "secret named by "}.get(self.kind, "")
        return f"{prefix}{self.where}" if self.where else self.kind


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    section: str
    key: str
    type: Any
    default: Any
    description: str
    secret: bool

    @property
    def name(self) -> str:
        """As people write it: `[core] parallelism`."""
        return f"[{self.section}] {self.key}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"STANNEL__{self.section}__{self.key}".upper()


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as it may be shown: plain data, and `***` for a secret somebody set."""

    section: str
    key: str
    value: Any
    origin: str
    description: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of this installation, by section."""

    home: Path
    core: Core
    database: Database
    scheduler: Scheduler
    dag_processor: DagProcessor
    logging: Logging
    workers: Workers
    state_store: StateStore
    sensors: Sensors
    operators: Operators
    triggerer: Triggerer
    sdk: Sdk
    origins: dict[tuple[str, str], Origin] = {}
    warnings: tuple[str, ...] = ()

    def entries(self) -> list[Entry]:
        """Every setting with its present value and origin, in the order of the table."""
        return [self._entry(declaration) for declaration in DECLARATIONS]

    def entry(self, section: str, key: str) -> Entry:
        """One setting as it may be shown."""
        for declaration in DECLARATIONS:
            if (declaration.section, declaration.key) == (section, key):
                return self._entry(declaration)

        given = f"{section}.{key}"
        raise UnknownId("setting", given, closest(given, [f"{d.section}.{d.key}" for d in DECLARATIONS]))

    def _entry(self, declaration: Declaration) -> Entry:
        value = getattr(getattr(self, declaration.section), declaration.key)
        origin = self.origins.get((declaration.section, declaration.key), Origin("default"))
        return Entry(
            section=declaration.section,
            key=declaration.key,
            value=shown(value, is_default=origin.kind == "default"),
            origin=str(origin),
            description=declaration.description,
        )


def shown(value: Any, *, is_default: bool) -> Any:
    """A setting's value as plain data that may be printed; only a default shows what is in a `Secret`."""
    if isinstance(value, Secret):
        return value.reveal() if is_default or not value else "***"
    return msgspec.to_builtins(value, enc_hook=str)


def _sections() -> dict[str, type[Section]]:
    hints = get_type_hints(Settings)
    return {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Section)}


def _declarations(section: str, kind: type[Section]) -> list[Declaration]:
    hints = get_type_hints(kind, include_extras=True)
    declared = []
    for field in msgspec.structs.fields(kind):
        annotated = hints[field.name]
        default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        declared.append(
            Declaration(
                section=section,
                key=field.name,
                type=annotated,
                default=default,
                description=annotated.__metadata__[-1].description,
                secret=annotated.__origin__ is Secret,
            )
        )
    return declared


SECTIONS = _sections()
DECLARATIONS = tuple(row for section, kind in SECTIONS.items() for row in _declarations(section, kind))
