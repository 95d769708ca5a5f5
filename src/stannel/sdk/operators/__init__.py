"""The operators that come with the SDK."""

from stannel.sdk.operators.bash import BashOperator
from stannel.sdk.operators.empty import EmptyOperator
from stannel.sdk.operators.python import (
    BaseBranchOperator,
    BranchPythonOperator,
    PythonOperator,
    ShortCircuitOperator,
)
from stannel.sdk.operators.trigger_dagrun import TriggerDagRunOperator

__all__ = [
    "BaseBranchOperator",
    "BashOperator",
    "BranchPythonOperator",
    "EmptyOperator",
    "PythonOperator",
    "ShortCircuitOperator",
    "TriggerDagRunOperator",
]
