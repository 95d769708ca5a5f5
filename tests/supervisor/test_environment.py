"""Tasks see the environment, not the engine's keys."""

from stannel.supervisor.environment import without_engine_secrets


def test_the_keys_to_the_engine_are_left_out():
    secrets = {
        "STANNEL__DATABASE__SQL_ALCHEMY_CONN": "postgresql://",
        "STANNEL__DATABASE__POOL_SIZE": "5",
        "STANNEL__CORE__FERNET_KEY": "k",
        "STANNEL__CORE__FERNET_KEY_CMD": "cat k",
        "STANNEL__API_AUTH__JWT_SECRET": "s",
        "AIRFLOW__CORE__SQL_ALCHEMY_CONN": "sqlite://",
        "STANNEL__CELERY__BROKER_URL": "redis://:p@h",
        "stannel__database__sql_alchemy_conn": "x",
    }
    assert without_engine_secrets(secrets) == {}


def test_everything_else_stays():
    kept = {
        "HOME": "/root",
        "USER": "root",
        "CLIENT_SECRET": "the task's own",
        "STANNEL_CONN_DB": "postgresql://the task's own",
        "STANNEL__LOGGING__LOGGING_LEVEL": "DEBUG",
    }
    assert without_engine_secrets(kept) == kept
