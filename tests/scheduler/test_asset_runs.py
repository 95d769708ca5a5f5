"""Runs that asset events make: when, of which events, and what waits for what."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from scheduler.conftest import Stage, task

from stannel.model.asset import (
    AliasSpec,
    AllOf,
    AnyOf,
    AnyOfAlias,
    AssetSpec,
    Condition,
    Consumption,
    Emitted,
    EventSource,
    Grouping,
    NewEvent,
    ThisAsset,
)
from stannel.model.moments import to_micros
from stannel.model.run import Run, RunType
from stannel.model.schedule import Cron, Never, OnAssets
from stannel.model.states import RUN_ENDS, RunState
from stannel.scheduler.loop import Scheduler
from stannel.store.event_queue import next_look
from stannel.store.new_events import register_events
from stannel.store.sql import Tx

A, B = ThisAsset("a", "a"), ThisAsset("b", "b")
ASSETS = (AssetSpec(name="a", uri="a"), AssetSpec(name="b", uri="b"))
EACH = Consumption(grouping=Grouping.EACH)


def consumer(stage: Stage, on: Condition = A, policy: Consumption | None = None, **fields: Any) -> None:
    time = fields.pop("time", Never())
    stage.dag(task("t"), schedule=OnAssets(on, policy, time), assets=ASSETS, **fields)


def tell(stage: Stage, *numbers: int, of: ThisAsset = A, **fields: Any) -> None:
    events = [NewEvent(of=of, source=EventSource.WATCHER, extra={"n": number}, **fields) for number in numbers]
    stage.store.events.register(events, now=stage.now)


def runs(stage: Stage, dag_id: str = "d") -> list[Run]:
    return sorted(stage.store.runs.latest(dag_id=dag_id, limit=1000), key=lambda run: run.pk)


def consumed(stage: Stage, dag_id: str = "d") -> list[list[int]]:
    return [[one.extra["n"] for one in stage.store.events.of_run(run.pk)] for run in runs(stage, dag_id)]


def waiting(stage: Stage, dag_id: str = "d") -> int:
    return len(stage.store.event_queue.waiting(dag_id))


def test_all_events_that_wait_make_up_one_run(stage: Stage) -> None:
    consumer(stage)
    tell(stage, 1, 2)
    stage.now += timedelta(seconds=1)
    tell(stage, 3)
    stage.tick(seconds=1)
    [run] = runs(stage)
    assert consumed(stage) == [[1, 2, 3]]
    assert (run.run_type, run.triggered_by) == (RunType.ASSET_TRIGGERED, "asset")
    assert (run.logical_date, run.data_interval_start) == (None, None)
    assert run.run_after == stage.now - timedelta(seconds=1)
    assert run.run_id.startswith(f"asset_triggered__{run.run_after.isoformat()}_")
    assert (waiting(stage), run.state) == (0, RunState.RUNNING)


def test_the_run_is_queued_for_workers_in_the_same_tick(stage: Stage) -> None:
    consumer(stage)
    tell(stage, 1)
    stage.tick()
    [attempt] = stage.claim_all()
    assert [one.extra for one in attempt.events] == [{"n": 1}]


def test_all_assets_of_a_condition_are_needed_and_every_event_is_taken_along(stage: Stage) -> None:
    consumer(stage, AllOf((A, B)))
    tell(stage, 1, 2)
    stage.tick()
    assert (consumed(stage), waiting(stage)) == ([], 2)
    tell(stage, 3, of=B)
    stage.tick()
    assert (consumed(stage), waiting(stage)) == ([[1, 2, 3]], 0)


def test_any_asset_of_a_condition_is_enough(stage: Stage) -> None:
    consumer(stage, AnyOf((A, B)))
    tell(stage, 1, of=B)
    stage.tick()
    assert consumed(stage) == [[1]]


def test_nothing_happens_without_events(stage: Stage) -> None:
    consumer(stage)
    stage.tick()
    stage.tick(hours=1)
    assert runs(stage) == []


def test_the_success_of_a_producer_starts_its_consumer(stage: Stage) -> None:
    consumer(stage)
    stage.dag(task("p", outlets=(A,)), dag_id="producer", assets=ASSETS)
    stage.trigger("producer")
    stage.tick()
    stage.end(stage.claim()["p"], outlets=(Emitted(of=A, extra={"n": 7}),))
    stage.tick()
    assert consumed(stage) == [[7]]


def test_events_wait_while_a_dag_is_paused(stage: Stage) -> None:
    consumer(stage, is_paused_upon_creation=True)
    tell(stage, 1)
    stage.tick()
    tell(stage, 2)
    assert stage.tick(hours=5) > 0.1
    assert (consumed(stage), waiting(stage)) == ([], 2)
    stage.store.dags.pause("d", paused=False)
    stage.tick()
    assert consumed(stage) == [[1, 2]]


def test_events_wait_while_the_file_is_broken(stage: Stage) -> None:
    consumer(stage)
    broken = stage.store.dags.files()[0]
    stage.break_file(broken.path)
    tell(stage, 1)
    stage.tick()
    assert consumed(stage) == []
    consumer(stage)
    stage.tick()
    assert consumed(stage) == [[1]]


def test_events_wait_at_max_active_runs_and_go_on_when_a_run_ends(stage: Stage) -> None:
    consumer(stage, max_active_runs=1)
    tell(stage, 1)
    stage.tick()
    tell(stage, 2)
    assert stage.tick() > 0.1
    tell(stage, 3)
    assert stage.tick(minutes=10) > 0.1
    assert consumed(stage) == [[1]]
    stage.work()
    stage.tick()
    stage.tick()
    assert consumed(stage) == [[1], [2, 3]]


def test_a_dag_that_is_no_longer_scheduled_on_assets_lets_its_events_go(stage: Stage) -> None:
    consumer(stage, AllOf((A, B)))
    tell(stage, 1)
    stage.tick()
    stage.dag(task("t"), schedule=Never())
    stage.tick()
    assert (waiting(stage), runs(stage)) == (0, [])
    with stage.store.read() as tx:
        assert next_look(tx) is None


def test_a_dag_that_catches_up_takes_every_event_it_never_had(stage: Stage) -> None:
    stage.dag(task("p", outlets=(A,)), dag_id="producer", assets=ASSETS)
    tell(stage, 1, 2)
    consumer(stage, catchup=True)
    consumer(stage, dag_id="other")
    tell(stage, 3)
    stage.tick()
    tell(stage, 4)
    stage.tick()
    assert consumed(stage) == [[1, 2, 3], [4]]
    assert consumed(stage, "other") == [[3], [4]]


def test_a_schedule_of_assets_and_time_makes_runs_of_both_kinds(stage: Stage) -> None:
    consumer(stage, time=Cron("0 13 * * *", interval=False), start_date=stage.now)
    tell(stage, 1)
    stage.tick()
    stage.tick(hours=1)
    assert [run.run_type for run in runs(stage)] == [RunType.ASSET_TRIGGERED, RunType.SCHEDULED]
    assert consumed(stage) == [[1], []]


def test_an_alias_is_met_by_what_was_emitted_through_it(stage: Stage) -> None:
    consumer(stage, AllOf((A, AnyOfAlias("files"))), aliases=(AliasSpec("files"),))
    tell(stage, 1)
    stage.tick()
    assert consumed(stage) == []
    tell(stage, 2, of=B, aliases=("files",))
    stage.tick()
    assert consumed(stage) == [[1, 2]]


def test_a_run_for_each_event(stage: Stage) -> None:
    consumer(stage, policy=EACH, max_active_runs=2)
    tell(stage, 1, 2, 3)
    stage.tick()
    assert consumed(stage) == [[1], [2]]
    for _ in range(4):
        stage.work()
        stage.tick()
    assert consumed(stage) == [[1], [2], [3]]


def test_a_long_queue_is_read_in_parts_and_in_order(stage: Stage) -> None:
    consumer(stage, AllOf((A, B)), policy=EACH, max_active_runs=1000)
    tell(stage, *range(500))
    tell(stage, 500, of=B)
    tell(stage, 501)
    tell(stage, 502, of=B)
    stage.tick()
    assert consumed(stage) == [list(range(501)), [501, 502]]


def test_many_runs_at_once_are_all_made(stage: Stage) -> None:
    consumer(stage, policy=EACH, max_active_runs=1000)
    tell(stage, *range(250))
    stage.tick()
    assert consumed(stage) == [[number] for number in range(250)]


def test_a_window_closes_by_itself_and_the_scheduler_sleeps_until_then(stage: Stage) -> None:
    consumer(stage, policy=Consumption(grouping=Grouping.WINDOW, seconds=0.5))
    tell(stage, 1)
    assert stage.tick() == pytest.approx(0.5, abs=0.01)
    stage.now += timedelta(seconds=0.3)
    tell(stage, 2)
    assert stage.tick() == pytest.approx(0.2, abs=0.01)
    stage.tick(seconds=0.21)
    assert consumed(stage) == [[1, 2]]


def test_only_the_newest_event_counts(stage: Stage) -> None:
    consumer(stage, policy=Consumption(latest=True))
    tell(stage, 1, 2, 3)
    stage.tick()
    assert (consumed(stage), waiting(stage)) == ([[3]], 0)


def test_keys_run_beside_each_other_and_each_in_its_order(stage: Stage) -> None:
    consumer(stage, policy=Consumption(grouping=Grouping.EACH, by_key=True))
    tell(stage, 1, 2, partition_key="x")
    tell(stage, 3, partition_key="y")
    stage.tick()
    assert [(run.partition_key, events) for run, events in zip(runs(stage), consumed(stage), strict=True)] == [
        ("x", [1]),
        ("y", [3]),
    ]
    tell(stage, 4, partition_key="z")
    stage.tick()
    assert consumed(stage)[-1] == [4]
    for _ in range(3):
        stage.work()
        stage.tick()
    assert consumed(stage) == [[1], [3], [4], [2]]


def test_a_rate_spreads_runs_over_time(stage: Stage) -> None:
    consumer(stage, policy=Consumption(grouping=Grouping.EACH, rate_runs=1, rate_seconds=60))
    tell(stage, 1, 2)
    stage.tick()
    assert consumed(stage) == [[1]]
    stage.tick(seconds=59)
    assert consumed(stage) == [[1]]
    stage.tick(seconds=1)
    assert consumed(stage) == [[1], [2]]


def test_two_schedulers_make_each_run_once(stage: Stage) -> None:
    consumer(stage, policy=EACH, max_active_runs=100)
    other = Scheduler(stage.store, stage.settings, clock=lambda: stage.now)
    for number in range(10):
        tell(stage, number)
        stage.tick()
        other.tick()
    assert consumed(stage) == [[number] for number in range(10)]


def test_an_event_of_a_dag_that_is_gone_from_the_store_is_let_go(stage: Stage) -> None:
    consumer(stage)

    def register(tx: Tx) -> None:
        register_events(tx, [NewEvent(of=A, source=EventSource.WATCHER)], to_micros(stage.now))

    with stage.store.transaction() as tx:
        register(tx)
    stage.forget_dag("d")
    assert stage.tick() > 0.1
    with stage.store.read() as tx:
        assert next_look(tx) is None


def test_every_event_of_many_producers_makes_one_run_though_several_schedulers_work(
    tmp_path: Path, postgres_url: str
) -> None:
    stages = [Stage(tmp_path / str(one), STANNEL__DATABASE__SQL_ALCHEMY_CONN=postgres_url) for one in range(3)]
    first = stages[0]
    consumer(first, policy=EACH, max_active_runs=5)
    consumer(first, AllOf((A, B)), dag_id="both", max_active_runs=2)
    total, each = 120, 20
    first.now = datetime.now(UTC)

    def produce(stage: Stage, start: int) -> None:
        for number in range(start, start + each):
            tell(stage, number, identity=str(number))
            tell(stage, number, of=B, identity=str(number))

    def schedule(stage: Stage) -> None:
        while len(runs(first)) < total or any(run.state not in RUN_ENDS for run in runs(first)):
            stage.now = datetime.now(UTC)
            stage.renew_worker(60)
            stage.scheduler.tick()
            stage.work()

    with ThreadPoolExecutor(8) as pool:
        waiting_for = [pool.submit(schedule, stage) for stage in stages]
        waiting_for += [pool.submit(produce, stages[one % 3], one * each) for one in range(total // each)]
        for one in waiting_for:
            one.result(timeout=60)
    assert sorted(consumed(first)) == [[number] for number in range(total)]
    # Of two assets, what is left over on one side waits; no event is lost, and none is in two places.
    in_runs = [number for events in consumed(first, "both") for number in events]
    assert len(in_runs) + waiting(first, "both") == 2 * total
    assert max(Counter(in_runs).values()) <= 2
    assert first.store.upkeep.check() == []
    for stage in stages:
        stage.store.close()
