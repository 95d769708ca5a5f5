"""What of the engine's environment its child processes may see: everything but the keys to the engine itself."""

import re
from collections.abc import Mapping

from stannel.settings import Settings

_ENGINE_SECRET = re.compile(
    r"(STANNEL|AIRFLOW)__("
    r"DATABASE__.*|.*SQL_ALCHEMY_CONN.*|.*FERNET.*|.*BROKER_URL.*|.*RESULT_BACKEND.*|.*_CMD|.*_SECRET|.*PASSWORD.*)",
    re.IGNORECASE,
)


def without_engine_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without database addresses, encryption keys and the commands that print them."""
    return {name: value for name, value in environ.items() if not _ENGINE_SECRET.fullmatch(name)}


def for_authors(environ: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """What processes with authors' code get: no engine secrets, and the settings their defaults depend on."""
    core, timeout = settings.core, settings.core.default_task_execution_timeout
    return {
        **without_engine_secrets(environ),
        "STANNEL__CORE__DEFAULT_TASK_RETRIES": str(core.default_task_retries),
        "STANNEL__CORE__DEFAULT_TASK_RETRY_DELAY": str(core.default_task_retry_delay),
        "STANNEL__CORE__DEFAULT_TASK_EXECUTION_TIMEOUT": "" if timeout is None else str(timeout),
        "STANNEL__CORE__DEFAULT_TIMEZONE": core.default_timezone.key or "UTC",
        "STANNEL__SCHEDULER__CATCHUP_BY_DEFAULT": str(settings.scheduler.catchup_by_default).lower(),
        "STANNEL__LOGGING__LOGGING_LEVEL": settings.logging.logging_level,
        "STANNEL__LOGGING__NAMESPACE_LEVELS": settings.logging.namespace_levels,
        "STANNEL__WORKERS__FRAME_LIMIT": str(settings.workers.frame_limit),
        "STANNEL__WORKERS__STATE_STORE_BACKEND": settings.workers.state_store_backend,
        "STANNEL__STATE_STORE__DEFAULT_RETENTION_DAYS": str(settings.state_store.default_retention_days),
        "STANNEL__STATE_STORE__MAX_VALUE_STORAGE_BYTES": str(settings.state_store.max_value_storage_bytes),
        "STANNEL__SENSORS__DEFAULT_TIMEOUT": str(settings.sensors.default_timeout),
        "STANNEL__OPERATORS__DEFAULT_DEFERRABLE": str(settings.operators.default_deferrable).lower(),
        "STANNEL__TRIGGERER__QUEUES_ENABLED": str(settings.triggerer.queues_enabled).lower(),
    }
