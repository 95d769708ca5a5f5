"""A decision: one of two ways is taken, and they join again."""

from stannel.sdk import DAG, Label, Param, TriggerRule, task, timezone
from stannel.sdk.operators import EmptyOperator

with DAG(
    "branching",
    schedule="@daily",
    start_date=timezone.datetime(2026, 1, 1),
    is_paused_upon_creation=True,
    params={"orders": Param(12, type="integer", minimum=0, description="How many orders came in")},
    tags=["example"],
):

    @task.branch
    def busy_day(params=None):
        return "ship_in_batches" if params["orders"] > 10 else "ship_each"

    @task.short_circuit
    def anything_to_ship(params=None):
        return params["orders"] > 0

    batches = EmptyOperator(task_id="ship_in_batches")
    each = EmptyOperator(task_id="ship_each")
    report = EmptyOperator(task_id="report", trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)

    decision = busy_day()
    anything_to_ship() >> decision
    decision >> Label("many") >> batches >> report
    decision >> Label("few") >> each >> report
