"""Code that others have written down for Airflow runs as it stands: deferred, fired, resumed, in the whole engine."""

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from stories.deferral import engine_with, xcom
from support.deferring_examples import A_SECRET, A_TRIGGER, ALWAYS_DEFERRED, BOTH_MODES

from stannel.testing import Engine

# What a DAG file does with each of them.
USES = {
    "both_modes": BOTH_MODES
    + """
from airflow.sdk import DAG

with DAG("both_modes", schedule=None):
    WaitOneHourSensor(task_id="asked", deferrable=True)
    WaitOneHourSensor(task_id="by_default")
""",
    "one_hour": ALWAYS_DEFERRED
    + """
from airflow.sdk import DAG

with DAG("one_hour", schedule=None):
    WaitOneHourSensor(task_id="waits")
""",
    "simple_moment": A_TRIGGER
    + """
from datetime import timedelta
from airflow.sdk import DAG, BaseOperator

class UntilSoon(BaseOperator):
    def execute(self, context):
        self.defer(trigger=DateTimeTrigger(timezone.utcnow() + timedelta(seconds=1)), method_name="end")

    def end(self, context, event):
        return [type(event).__name__, event <= timezone.utcnow()]

with DAG("simple_moment", schedule=None):
    UntilSoon(task_id="waits")
""",
    "sensitive": "from airflow.triggers.base import BaseTrigger, TriggerEvent\n"
    + A_SECRET
    + """
from airflow.sdk import DAG, BaseOperator

class Runs(MyTrigger):
    def serialize(self):
        return f"{__name__}.Runs", super().serialize()[1]

    async def run(self):
        yield TriggerEvent([self.param, self.secret[::-1]])

class Waits(BaseOperator):
    def execute(self, context):
        self.defer(trigger=Runs("open", "hush"), method_name="end")

    def end(self, context, event):
        return event

with DAG("sensitive", schedule=None):
    Waits(task_id="waits")
""",
}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    files = {f"{name}.py": textwrap.dedent(source) for name, source in USES.items()}
    settings = {"STANNEL__OPERATORS__DEFAULT_DEFERRABLE": "true"}
    with engine_with(request, tmp_path_factory.mktemp("document"), files, settings) as engine:
        yield engine


@pytest.mark.parametrize(("dag_id", "task_ids"), [("both_modes", ["asked", "by_default"]), ("one_hour", ["waits"])])
def test_a_sensor_waits_its_hour_and_completes(engine: Engine, dag_id: str, task_ids: list[str]) -> None:
    run = engine.trigger(dag_id)
    engine.wait_for_states(run, **dict.fromkeys(task_ids, "deferred"))
    waits = engine.triggers(run)
    hour = timedelta(hours=1)
    for one in waits:
        assert one.due_at is not None
        assert timedelta(0) <= one.created_at + hour - one.due_at < timedelta(minutes=1)
    # Not before its time, and then at once.
    almost = min(one.due_at for one in waits if one.due_at) - timedelta(seconds=1)
    assert engine.store.triggers.fire_due(almost, most=10) == 0
    assert engine.store.triggers.fire_due(datetime.now(UTC) + 2 * hour, most=10) == len(task_ids)
    assert engine.wait_for_run(run).state == "success"
    segments = sorted((one.task_id, str(one.state)) for one in engine.store.attempts.of_run(run))
    assert segments == [(task_id, state) for task_id in task_ids for state in ("deferred", "success")]


def test_a_trigger_of_ones_own_that_waits_for_a_moment(engine: Engine) -> None:
    run = engine.run("simple_moment")
    assert run.state == "success", engine.task_log(run, "waits")
    kind, is_over = xcom(engine, run, "waits")
    assert kind in ("datetime", "DateTime")
    assert is_over


def test_a_sensitive_argument_arrives_without_its_mark(engine: Engine) -> None:
    run = engine.run("sensitive")
    assert xcom(engine, run, "waits") == ["open", "hsuh"], engine.task_log(run, "waits")
    assert "hush" not in engine.task_log(run, "waits")
