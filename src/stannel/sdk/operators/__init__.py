"""The operators that come with the SDK."""

from stannel.sdk.operators.bash import BashOperator
from stannel.sdk.operators.empty import EmptyOperator
from stannel.sdk.operators.postgres_job import PostgresJobOperator
from stannel.sdk.operators.python import (
    BaseBranchOperator,
    BranchPythonOperator,
    PythonOperator,
    ShortCircuitOperator,
)
from stannel.sdk.operators.subprocess_job import SubprocessJobOperator
from stannel.sdk.operators.trigger_dagrun import TriggerDagRunOperator

__all__ = [
    "BaseBranchOperator",
    "BashOperator",
    "BranchPythonOperator",
    "EmptyOperator",
    "PostgresJobOperator",
    "PythonOperator",
    "ShortCircuitOperator",
    "SubprocessJobOperator",
    "TriggerDagRunOperator",
]
