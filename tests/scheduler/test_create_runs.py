"""Runs that schedules ask for: when they are made, how many, and what is remembered for the next time."""

from datetime import UTC, datetime

import pytest
from scheduler.conftest import Stage, task

from stannel.model.schedule import Continuous, Cron, Every, Never, Once
from stannel.model.states import RunState
from stannel.scheduler import timetables

DAILY = Cron("0 0 * * *")


def made(stage: Stage, dag_id: str = "d") -> list[str]:
    return sorted(run.run_id for run in stage.store.runs.latest(dag_id=dag_id, limit=1000))


def test_a_daily_dag_gets_the_run_of_the_last_complete_day(stage: Stage) -> None:
    stage.dag(task("a"), schedule=DAILY, start_date=datetime(2026, 3, 1, tzinfo=UTC))
    stage.tick()
    assert made(stage) == ["scheduled__2026-03-09T00:00:00+00:00"]
    run = stage.store.runs.latest(dag_id="d")[0]
    assert (run.data_interval_start, run.data_interval_end) == (
        datetime(2026, 3, 9, tzinfo=UTC),
        datetime(2026, 3, 10, tzinfo=UTC),
    )
    stage.tick(hours=11)
    assert len(made(stage)) == 1
    stage.tick(hours=2)
    assert made(stage)[-1] == "scheduled__2026-03-10T00:00:00+00:00"


def test_catch_up_makes_every_missed_run_but_not_more_at_once_than_allowed(stage: Stage) -> None:
    stage.dag(task("a"), schedule=DAILY, start_date=datetime(2026, 3, 1, tzinfo=UTC), catchup=True, max_active_runs=3)
    stage.tick()
    assert len(made(stage)) == 3
    for _ in range(12):
        stage.work()
        stage.tick()
        stage.tick()
    assert [run_id[11:21] for run_id in made(stage)] == [f"2026-03-{day:02}" for day in range(1, 10)]
    assert {run.state for run in stage.store.runs.latest(dag_id="d", limit=1000)} == {RunState.SUCCESS}


def test_a_dag_at_its_limit_does_not_keep_the_scheduler_awake(stage: Stage) -> None:
    stage.dag(task("a"), schedule=Every(60.0), start_date=stage.now, max_active_runs=1)
    stage.tick(minutes=2)
    assert stage.tick(minutes=10) > 0
    assert len(made(stage)) == 1


def test_a_stopped_scheduler_does_not_make_up_for_what_it_missed_unless_asked_to(stage: Stage) -> None:
    stage.dag(task("a"), schedule=DAILY, start_date=datetime(2026, 3, 1, tzinfo=UTC))
    stage.tick()
    stage.tick(days=5)
    assert [run_id[11:21] for run_id in made(stage)] == ["2026-03-09", "2026-03-14"]


@pytest.mark.parametrize(("schedule", "expected"), [(Never(), 0), (Once(), 1), (Continuous(), 1)])
def test_the_other_schedules(stage: Stage, schedule: Never | Once | Continuous, expected: int) -> None:
    stage.dag(task("a"), schedule=schedule, start_date=datetime(2026, 3, 1, tzinfo=UTC))
    stage.tick()
    stage.tick(days=1)
    assert len(made(stage)) == expected


def test_a_continuous_dag_begins_again_when_its_run_ends(stage: Stage) -> None:
    stage.dag(task("a"), schedule=Continuous(), start_date=datetime(2026, 3, 1, tzinfo=UTC))
    for number in range(1, 4):
        stage.tick(seconds=1)
        assert len(made(stage)) == number
        stage.work()
        stage.tick(seconds=1)


def test_a_paused_dag_makes_no_runs(stage: Stage) -> None:
    stage.dag(task("a"), schedule=DAILY, start_date=datetime(2026, 3, 1, tzinfo=UTC), is_paused_upon_creation=True)
    stage.tick(days=3)
    assert made(stage) == []
    stage.store.dags.pause("d", paused=False)
    stage.tick()
    assert len(made(stage)) == 1


def test_a_run_made_by_hand_for_the_same_date_is_not_made_twice(stage: Stage) -> None:
    stage.dag(task("a"), schedule=DAILY, start_date=datetime(2026, 3, 9, tzinfo=UTC))
    stage.trigger(run_id="by hand", logical_date=datetime(2026, 3, 9, tzinfo=UTC))
    stage.tick()
    assert made(stage) == ["by hand"]
    stage.tick(days=1)
    assert len(made(stage)) == 2


def test_catching_up_passes_over_a_date_that_was_run_by_hand(stage: Stage) -> None:
    stage.dag(task("a"), schedule=DAILY, start_date=datetime(2026, 3, 6, tzinfo=UTC), catchup=True)
    stage.trigger(run_id="by hand", logical_date=datetime(2026, 3, 7, tzinfo=UTC))
    stage.tick()
    days = [str(run.logical_date)[:10] for run in stage.store.runs.latest(dag_id="d", limit=100)]
    assert sorted(days) == ["2026-03-06", "2026-03-07", "2026-03-08", "2026-03-09"]


def test_a_schedule_that_cannot_be_computed_stops_only_its_own_dag(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    stage.dag(task("a"), schedule=DAILY, start_date=start, dag_id="odd")
    stage.dag(task("a"), schedule=DAILY, start_date=start, dag_id="fine")
    next_run = timetables.next_run

    def with_a_bug(spec: object, *args: object, **kwargs: object) -> object:
        if spec.dag_id == "odd":  # type: ignore[attr-defined]
            raise ZeroDivisionError("a bug")
        return next_run(spec, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(timetables, "next_run", with_a_bug)
    assert stage.tick() > 0
    assert (made(stage, "odd"), len(made(stage, "fine"))) == ([], 1)
