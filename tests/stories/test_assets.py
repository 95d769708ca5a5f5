"""Updates travel: a task succeeds, an event is stored, the DAGs that wait for it run and know why."""

import json

from stannel.model.run import Run, RunType
from stannel.testing import Engine

SHOP = """
    import json
    from stannel.sdk import DAG, Asset, AssetAlias, Metadata, asset, task

    orders = Asset("orders", uri="s3://shop/orders", extra={"owner": "shop"})
    payments = Asset("payments")
    files = AssetAlias("files")

    with DAG("takes_orders", schedule=None):
        @task(outlets=[orders])
        def take(outlet_events=None, dag_run=None):
            outlet_events[orders].extra = {"number": dag_run.conf["number"]}
        take()

    with DAG("takes_payments", schedule=None):
        @task(outlets=[payments])
        def take(dag_run=None):
            yield Metadata(payments, {"number": dag_run.conf["number"]})
        take()

    with DAG("emits", schedule=None):
        @task(outlets=[files])
        def emit(outlet_events=None):
            outlet_events[files].add(Asset("found", uri="file://found"), extra={"size": 3})
        emit()

    def numbers(events):
        return [event.extra["number"] for event in events]

    with DAG("ships", schedule=[orders, payments]):
        @task(inlets=[orders])
        def ship(triggering_asset_events, inlet_events=None):
            seen = triggering_asset_events
            assert inlet_events[orders][-1].extra["number"] == numbers(seen[orders])[-1]
            return {"orders": numbers(seen[orders]), "payments": numbers(seen[payments]),
                    "from": seen[orders][0].source_task_id}
        ship()

    with DAG("counts", schedule=orders.per_event(), max_active_runs=1):
        @task
        def count(triggering_asset_events):
            return numbers(triggering_asset_events[orders])
        count()

    with DAG("reads_files", schedule=files):
        @task
        def read(triggering_asset_events):
            [event] = triggering_asset_events[files]
            return [event.asset.uri, event.extra["size"]]
        read()

    @asset(schedule=orders | payments)
    def report(self, context, orders):
        return [self.name, orders.uri, len(context["triggering_asset_events"])]
"""


def runs_of(engine: Engine, dag_id: str, count: int) -> list[Run]:
    """The first so many runs that events made of a DAG, ended, in their order."""

    def look() -> list[Run]:
        found = engine.store.runs.latest(dag_id=dag_id, run_type=RunType.ASSET_TRIGGERED)
        return [] if len(found) < count else found

    found = engine.wait_until(look, seconds=60, what=f"events did not make {count} runs of {dag_id}")
    return [engine.wait_for_run(run) for run in sorted(found, key=lambda run: run.pk)]


def returned(engine: Engine, run: Run, task_id: str) -> object:
    text = engine.store.xcoms.get(run.pk, task_id, -1, "return_value")
    return None if text is None else json.loads(text)


def test_a_producer_starts_its_consumers_and_they_know_why(engine: Engine) -> None:
    engine.add_dag_file("shop.py", SHOP)
    engine.start()
    engine.wait_for_dag("report")
    # Whoever is paused misses nothing.
    engine.store.dags.pause("counts", paused=True)

    assert engine.run("takes_orders", conf={"number": 1}).state == "success"
    assert engine.run("takes_orders", conf={"number": 2}).state == "success"
    assert engine.store.runs.latest(dag_id="ships") == []
    assert engine.run("takes_payments", conf={"number": 3}).state == "success"

    [ships] = runs_of(engine, "ships", 1)
    assert ships.state == "success", engine.task_log(ships, "ship")
    assert returned(engine, ships, "ship") == {"orders": [1, 2], "payments": [3], "from": "take"}

    [report, *_] = runs_of(engine, "report", 1)
    assert returned(engine, report, "report") == ["report", "s3://shop/orders", 1]

    assert engine.store.runs.latest(dag_id="counts") == []
    engine.store.dags.pause("counts", paused=False)
    counts = runs_of(engine, "counts", 2)
    assert [returned(engine, run, "count") for run in counts] == [[1], [2]]

    assert engine.run("emits").state == "success"
    [reads] = runs_of(engine, "reads_files", 1)
    assert returned(engine, reads, "read") == ["file://found", 3]
    assert engine.store.upkeep.check() == []
