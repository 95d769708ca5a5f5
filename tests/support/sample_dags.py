"""Three DAGs as data, for tests that need something in the store and run nothing."""

from datetime import UTC, datetime

import msgspec

from stannel.model.dag import DagSpec, ParamSpec, TaskSpec
from stannel.model.schedule import Cron, Never

ORDERS = DagSpec(
    dag_id="orders",
    fileloc="orders.py",
    description="Adds up orders",
    schedule=Cron("0 6 * * *"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    tags=("sales",),
    params={
        "day": ParamSpec(default="monday", schema={"type": "string"}),
        "limit": ParamSpec(schema={"type": "integer"}, required=True),
    },
    tasks=(
        TaskSpec(task_id="extract", operator="PythonOperator"),
        TaskSpec(task_id="transform", operator="PythonOperator", upstream=("extract",)),
        TaskSpec(task_id="load", operator="BashOperator", upstream=("transform",)),
    ),
)
PLAIN = DagSpec(dag_id="plain", fileloc="plain.py", tasks=(TaskSpec(task_id="only", operator="EmptyOperator"),))
CHAIN = msgspec.structs.replace(ORDERS, dag_id="chain", fileloc="chain.py", schedule=Never(), tags=(), params={})
