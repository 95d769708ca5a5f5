"""Waiting without a process, as authors of operators see it: through the front door, on both stores."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from stories.deferral import engine_with, hosts, log_lines, notes, open_gate, wait_for_log, xcom

from stannel.store.entries import StoredConnection
from stannel.testing import Engine

OPERATORS = """
    import os, time
    from datetime import datetime, timedelta, timezone
    from airflow.sdk import DAG, BaseOperator, Connection, Variable, chain
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.triggers.base import (
        BaseTrigger, StartTriggerArgs, TaskFailedEvent, TaskSkippedEvent, TaskSuccessEvent, TriggerEvent,
    )
    from airflow.triggers.temporal import TimeDeltaTrigger
    from gates import Gate

    def note(*words):
        with open(os.environ["STORY_NOTES"], "a") as file:
            print(*words, file=file)

    class Here(Gate):
        "A trigger in the DAG file itself."

    class Twice(BaseOperator):
        def execute(self, context):
            context["ti"].xcom_push(key="before", value="kept")
            self.defer(
                trigger=Here("first"),
                method_name="between",
                kwargs={"seen": ["execute"], "moment": datetime(2026, 1, 2, tzinfo=timezone.utc)},
                timeout=timedelta(minutes=5),
            )

        def between(self, context, event, seen, moment):
            self.defer(Gate("second"), "end", {"seen": [*seen, event, moment.isoformat()]})

        def end(self, context, event, seen):
            return [*seen, event, context["ti"].try_number]

    with DAG("twice", schedule=None):
        Twice(task_id="twice")

    class Overdue(BaseOperator):
        def execute(self, context):
            if context["ti"].try_number > 1:
                return "second try"
            self.defer(trigger=Gate("never"), method_name="end", timeout=timedelta(seconds=0.2))

        def end(self, context, event): raise AssertionError("nothing was fired")

    with DAG("overdue", schedule=None):
        Overdue(task_id="fails")
        Overdue(task_id="tries_again", retries=1, retry_delay=timedelta(0))

    class Ends(BaseTrigger):
        def __init__(self, how):
            super().__init__()
            self.how = how

        def serialize(self):
            return f"{__name__}.Ends", {"how": self.how}

        async def run(self):
            if self.how == "success":
                yield TaskSuccessEvent(xcoms={"return_value": {"rows": 3}, "other": [1, 2]})
            elif self.how == "failed":
                yield TaskFailedEvent(xcoms={"return_value": "why"})
            else:
                yield TaskSkippedEvent()

    class EndedByItsTrigger(BaseOperator):
        def __init__(self, how, **kwargs):
            super().__init__(**kwargs)
            self.how = how

        def execute(self, context):
            if context["ti"].try_number > 1:
                return "second try"
            self.defer(trigger=Ends(self.how), method_name=None)

    said = lambda context: note(context["ti"].task_id)
    with DAG("ended", schedule=None):
        behind = EmptyOperator(task_id="behind", trigger_rule="all_done")
        chain([
            EndedByItsTrigger(task_id="succeeds", how="success", on_success_callback=said),
            EndedByItsTrigger(task_id="fails", how="failed", on_failure_callback=said),
            EndedByItsTrigger(task_id="fails_once", how="failed", retries=1, retry_delay=timedelta(0)),
            EndedByItsTrigger(task_id="skips", how="skipped"),
        ], behind)

    class Named(Gate):
        "Fires what its templates came to."
        def __init__(self, name, words):
            super().__init__(name)
            self.words = words

        def serialize(self):
            return f"{__name__}.Named", {"name": self.name, "words": self.words}

        async def run(self):
            content = await self.opened()
            yield TriggerEvent([self.words, content, self.task_instance.map_index])

    class FromTrigger(BaseOperator):
        start_from_trigger = True
        start_trigger_args = StartTriggerArgs(
            trigger_cls=f"{__name__}.Named",
            trigger_kwargs={"name": "go", "words": "{{ dag_run.conf['who'] }} in {{ run_id }}"},
            next_method="end",
            next_kwargs={"kept": [1]},
        )

        def __init__(self, number=0, **kwargs):
            super().__init__(**kwargs)
            self.number = number

        def execute(self, context): raise AssertionError("it begins with its trigger")

        def end(self, context, event, kept): return [self.number, *event, *kept]

    with DAG("from_trigger", schedule=None):
        FromTrigger(task_id="one")
        FromTrigger.partial(task_id="mapped").expand(number=[10, 20, 30])

    class Asking(Gate):
        async def run(self):
            self.log.info("the password is %s", Connection.get("db").password)
            self.log.info("the token is %s", Variable.get("api_token"))
            yield TriggerEvent([Variable.get("city"), Connection.get("db").host, Variable.get("nothing", "no such")])

    class Asks(BaseOperator):
        def execute(self, context): self.defer(trigger=Asking("unused"), method_name="end")
        def end(self, context, event): return event

    with DAG("asks", schedule=None):
        Asks(task_id="asks")

    class InThree(BaseOperator):
        def execute(self, context):
            print("worker before")
            self.defer(trigger=Talks("go"), method_name="end")

        def end(self, context, event): print("worker after")

    class Talks(Gate):
        async def run(self):
            self.log.info("trigger by its logger")
            print("trigger by print")
            yield TriggerEvent(await self.opened())

    with DAG("talks", schedule=None):
        InThree(task_id="talks")

    class Whole(BaseOperator):
        def execute(self, context): self.defer(trigger=Gate("never"), method_name="end")
        def end(self, context, event): raise AssertionError("nothing was fired")

    class Left(BaseOperator):
        def execute(self, context):
            self.defer(trigger=TimeDeltaTrigger(timedelta(seconds=2)), method_name="end")

        def end(self, context, event):
            began = time.monotonic()
            while True:
                time.sleep(0.02)
                note("left", time.monotonic() - began)

    with DAG("limits", schedule=None):
        Whole(task_id="while_deferred", execution_timeout=timedelta(seconds=0.5), retries=0)
        Left(task_id="after_resume", execution_timeout=timedelta(seconds=4))
"""

CHANGING = """
    from airflow.triggers.base import TriggerEvent
    from gates import Gate

    class Versioned(Gate):
        async def run(self):
            await self.opened()
            yield TriggerEvent("VERSION")
"""

CHANGES = """
    from airflow.sdk import DAG, BaseOperator
    from changing import Versioned

    class Waits(BaseOperator):
        def execute(self, context): self.defer(trigger=Versioned("go"), method_name="end")
        def end(self, context, event): return event

    with DAG("changes", schedule=None):
        Waits(task_id="waits")
"""

CHANGES_ITSELF = (
    CHANGING
    + """
    from airflow.sdk import DAG, BaseOperator

    class Waits(BaseOperator):
        def execute(self, context): self.defer(trigger=Versioned("go"), method_name="end")
        def end(self, context, event): return event

    with DAG("changes_itself", schedule=None):
        Waits(task_id="waits")
"""
)


# Files with a trigger whose author changes his mind, and the DAG that waits for it.
CHANGEABLE = {"changing.py": ("changes", CHANGING), "changes_itself.py": ("changes_itself", CHANGES_ITSELF)}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    files = {"operators.py": OPERATORS, "changes.py": CHANGES}
    files |= {name: source.replace("VERSION", "one") for name, (_, source) in CHANGEABLE.items()}
    with engine_with(request, tmp_path_factory.mktemp("waits"), files) as engine:
        engine.store.variables.save("city", "Utrecht")
        engine.store.variables.save("api_token", "tok-5ecret-value")
        engine.store.connections.save(StoredConnection(conn_id="db", conn_type="x", host="h7", password="p4ssw0rd-x"))
        yield engine


def test_a_task_waits_twice_without_a_process_and_keeps_what_it_handed_over(engine: Engine) -> None:
    run = engine.trigger("twice")
    engine.wait_for_states(run, twice="deferred")
    [trigger] = engine.triggers(run)
    assert trigger.classpath.endswith(".Here")
    assert trigger.deadline_at is not None
    assert trigger.deadline_at - trigger.created_at == timedelta(minutes=5)
    open_gate(engine, run, "first", "one")
    engine.wait_until(
        lambda: any(one.classpath == "gates.Gate" for one in engine.triggers(run)), seconds=20, what="no second wait"
    )
    open_gate(engine, run, "second", "two")
    assert engine.wait_for_run(run).state == "success", engine.task_log(run, "twice")
    *seen, try_number = xcom(engine, run, "twice")
    assert seen == ["execute", "one", "2026-01-02T00:00:00+00:00", "two"]
    assert try_number == 1
    assert xcom(engine, run, "twice", "before") == "kept"
    assert [str(one.state) for one in engine.store.attempts.of_run(run)] == ["deferred", "deferred", "success"]


def test_a_wait_that_takes_too_long_fails_the_try_and_the_next_begins_anew(engine: Engine) -> None:
    run = engine.run("overdue")
    assert engine.states(run) == {"fails": "failed", "tries_again": "success"}
    assert xcom(engine, run, "tries_again") == "second try"
    assert "Trigger timeout" in (engine.tasks(run)["fails"].note or "")


def test_a_trigger_ends_its_task_without_a_worker(engine: Engine) -> None:
    run = engine.run("ended")
    assert engine.states(run) == {
        "succeeds": "success",
        "fails": "failed",
        "fails_once": "success",
        "skips": "skipped",
        "behind": "success",
    }
    assert xcom(engine, run, "succeeds") == {"rows": 3}
    assert xcom(engine, run, "succeeds", "other") == [1, 2]
    assert xcom(engine, run, "fails") == "why"
    assert xcom(engine, run, "fails_once") == "second try"
    tries = [one.try_number for one in engine.store.attempts.of_run(run) if one.task_id == "fails_once"]
    assert tries == [1, 2]
    engine.wait_until(
        lambda: {"succeeds", "fails"} <= set(notes(engine)), seconds=20, what="the callbacks were not called"
    )


def test_tasks_begin_with_their_trigger_mapped_ones_too_and_its_templates_are_rendered(engine: Engine) -> None:
    run = engine.trigger("from_trigger", conf={"who": "Ada"})
    everybody = ["one", "mapped[0]", "mapped[1]", "mapped[2]"]
    engine.wait_until(
        lambda: [engine.states(run).get(name) for name in everybody] == ["deferred"] * 4,
        seconds=20,
        what="they did not all begin to wait",
    )
    # No worker has seen them.
    assert {str(one.state) for one in engine.store.attempts.of_run(run)} == {"deferred"}
    open_gate(engine, run, "go", "gone")
    assert engine.wait_for_run(run).state == "success", engine.task_log(run, "one")
    words = f"Ada in {run.run_id}"
    assert xcom(engine, run, "one") == [0, words, "gone", -1, 1]
    found = [xcom(engine, run, "mapped", map_index=index) for index in range(3)]
    assert found == [[10 * (index + 1), words, "gone", index, 1] for index in range(3)]


def test_plain_calls_of_the_sdk_work_inside_a_trigger_and_secrets_stay_secret(engine: Engine) -> None:
    run = engine.run("asks")
    assert xcom(engine, run, "asks") == ["Utrecht", "h7", "no such"], engine.task_log(run, "asks")
    log = engine.task_log(run, "asks")
    assert "the password is ***" in log
    assert "the token is ***" in log
    assert "p4ssw0rd-x" not in log
    assert "tok-5ecret-value" not in log


def test_one_log_tells_it_in_one_order(engine: Engine) -> None:
    run = engine.trigger("talks")
    wait_for_log(engine, run, "talks", "trigger by print")
    open_gate(engine, run, "go")
    assert engine.wait_for_run(run).state == "success"
    said = [line["event"] for line in log_lines(engine, run, "talks")]
    expected = ["worker before", "trigger by its logger", "trigger by print", "Trigger fired event", "worker after"]
    places = [next(i for i, words in enumerate(said) if wanted in words) for wanted in expected]
    assert places == sorted(places), said


def test_execution_timeout_covers_the_whole_try(engine: Engine) -> None:
    run = engine.run("limits")
    assert engine.states(run) == {"while_deferred": "failed", "after_resume": "failed"}
    assert "execution timeout" in (engine.tasks(run)["while_deferred"].note or "")
    used = [float(line.split()[1]) for line in notes(engine) if line.startswith("left")]
    # It had four seconds, of which it waited two.
    assert used
    assert max(used) < 3.5


@pytest.mark.parametrize("file", CHANGEABLE)
def test_changed_trigger_code_counts_for_new_waits_and_running_ones_keep_theirs(engine: Engine, file: str) -> None:
    dag_id, source = CHANGEABLE[file]
    first = engine.trigger(dag_id, run_id="first")
    wait_for_log(engine, first, "waits", "starting")
    before = hosts(engine)
    engine.add_dag_file(file, source.replace("VERSION", "two"))
    second = engine.trigger(dag_id, run_id="second")
    wait_for_log(engine, second, "waits", "starting")
    for run in (second, first):
        open_gate(engine, run, "go")
        assert engine.wait_for_run(run).state == "success"
    assert xcom(engine, second, "waits") == "two"
    assert xcom(engine, first, "waits") == "one"
    assert set(hosts(engine).values()) == set(before.values()), "the triggerer was restarted"
