"""Any order of verbs, by schedulers, workers and users, leaves the store as a small model says, and consistent."""

import tempfile
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from store.world import NOW, World, note_moves, open_store, task

from stannel.model.moments import to_micros
from stannel.model.run import Attempt, Outcome
from stannel.model.states import RUN_ENDS, TASK_ENDS, AttemptState, RunState, TaskState, origins
from stannel.store.attempts import finish_instance, lost_attempts
from stannel.store.runs import end_run

T, R = TaskState, RunState
RETRIES = {"a": 0, "b": 1, "c": 2}
OWNERS = ("one", "two")
ENDS = (T.SUCCESS, T.UP_FOR_RETRY, T.UP_FOR_RESCHEDULE, T.FAILED, T.SKIPPED)


@dataclass
class Task:
    """What the model knows of a task instance."""

    max_tries: int
    state: TaskState = T.NONE
    tries: int = 0
    same_try: bool = False
    attempt: str | None = None
    owner: str | None = None


@dataclass
class Run:
    """What the model knows of a run."""

    state: RunState = R.QUEUED
    dirty: bool = True
    tasks: dict[str, Task] = field(
        default_factory=lambda: {task_id: Task(retries) for task_id, retries in RETRIES.items()}
    )


class Engine(RuleBasedStateMachine):
    """Plays everybody who uses the store, and keeps a model of what must come of it."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        store = open_store(f"sqlite:///{self.folder.name}/stannel.db", synchronous="off")
        note_moves(store)
        self.world = World(store)
        self.world.dag(*(task(task_id, retries=retries) for task_id, retries in RETRIES.items()))
        for owner in OWNERS:
            self.world.lease(owner)
        self.runs: dict[str, Run] = {}
        self.held: list[Attempt] = []
        self.made = 0
        self.somebody_asks_for_a_run()
        self.a_scheduler_works(3)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.store.close()
            self.folder.cleanup()

    def tasks(self, *states: TaskState) -> list[Task]:
        return [one for run in self.runs.values() for one in run.tasks.values() if one.state in states]

    def finished(self) -> list[str]:
        """The runs whose tasks have all ended."""
        return sorted(
            name for name, run in self.runs.items() if all(one.state in TASK_ENDS for one in run.tasks.values())
        )

    def pks(self, name: str, chosen: list[str]) -> list[int]:
        return [one.pk for one in self.world.instances(name) if one.task_id in chosen]

    @precondition(lambda self: len(self.runs) < 3)
    @rule()
    def somebody_asks_for_a_run(self) -> None:
        self.made += 1
        self.world.new_run(f"r{self.made}")
        self.runs[f"r{self.made}"] = Run()

    @rule(steps=st.sampled_from([1, 2, 3, 3, 3]))
    def a_scheduler_works(self, steps: int) -> None:
        """It may die after each of its steps."""
        for step in (self.start_runs, self.plan_what_changed, self.queue_tasks)[:steps]:
            step()

    def start_runs(self) -> None:
        self.world.start()
        for run in self.runs.values():
            if run.state is R.QUEUED:
                run.state, run.dirty = R.RUNNING, True

    def plan_what_changed(self) -> None:
        self.world.schedule()
        for run in self.runs.values():
            if run.state is R.RUNNING and run.dirty:
                run.dirty = False
                for one in run.tasks.values():
                    if one.state in (T.NONE, T.UP_FOR_RETRY, T.UP_FOR_RESCHEDULE):
                        one.state = T.SCHEDULED

    def queue_tasks(self) -> None:
        assert self.world.queue() == len(self.tasks(T.SCHEDULED))
        for one in self.tasks(T.SCHEDULED):
            one.state = T.QUEUED
            one.tries += 0 if one.same_try else 1

    @precondition(lambda self: self.finished())
    @rule(data=st.data(), state=st.sampled_from(sorted(RUN_ENDS)))
    def a_scheduler_ends_a_run(self, data: st.DataObject, state: RunState) -> None:
        name = data.draw(st.sampled_from(self.finished()))
        run = self.runs[name]
        with self.world.store.transaction() as tx:
            ended = end_run(tx, self.world.run(name), state, now=to_micros(NOW), why=None)
        assert ended is (run.state not in RUN_ENDS)
        run.state = state if ended else run.state

    @rule(owner=st.sampled_from(OWNERS), most=st.integers(1, 5), ends=st.lists(st.sampled_from(ENDS), max_size=3))
    def a_worker_works(self, owner: str, most: int, ends: list[TaskState]) -> None:
        """It claims, and some of what it runs ends."""
        self.claim(owner, most)
        current = {one.attempt for one in self.tasks(T.RUNNING) if one.owner == owner}
        mine = [one for one in self.held if one.attempt_id in current]
        for attempt, state in zip(mine, ends, strict=False):
            self.finish(attempt, state)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), state=st.sampled_from(ENDS))
    def a_worker_says_something_late(self, data: st.DataObject, state: TaskState) -> None:
        """What it says it may have said before, and the task may be another's by now."""
        self.finish(data.draw(st.sampled_from(self.held)), state)

    def claim(self, owner: str, most: int) -> None:
        claimed = sorted(self.world.claim(owner, most), key=lambda one: one.ti_pk)
        assert len(claimed) == min(most, len(self.tasks(T.QUEUED)))
        for attempt in claimed:
            one = self.runs[attempt.run_id].tasks[attempt.task_id]
            assert one.state is T.QUEUED
            assert (attempt.try_number, attempt.max_tries) == (one.tries, one.max_tries)
            one.state, one.attempt, one.owner = T.RUNNING, attempt.attempt_id, owner
        self.held += claimed

    def finish(self, attempt: Attempt, state: TaskState) -> None:
        state = T.FAILED if state is T.UP_FOR_RETRY and not attempt.should_retry else state
        run = self.runs.get(attempt.run_id)
        one = run.tasks[attempt.task_id] if run else None
        is_owner = one is not None and one.state is T.RUNNING and one.attempt == attempt.attempt_id
        assert self.world.finish(attempt, state, retry_at=NOW) is is_owner
        if run is not None:
            run.dirty = True
        if is_owner:
            one.state, one.same_try = state, state is T.UP_FOR_RESCHEDULE

    @rule(owner=st.sampled_from(OWNERS))
    def a_worker_dies_and_its_tasks_are_rescued(self, owner: str) -> None:
        self.world.store.leases.end(owner)
        with self.world.store.transaction() as tx:
            for lost in lost_attempts(tx, to_micros(NOW)):
                end = Outcome(state=T.FAILED, end_date=NOW, reason="lost")
                assert finish_instance(tx, lost.ti_pk, lost.attempt_id, end, AttemptState.LOST)
        for one in self.tasks(T.RUNNING):
            if one.owner == owner:
                one.state, one.same_try = T.FAILED, False
        self.world.lease(owner)

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), wish=st.sampled_from(["clear", "clear", "judge tasks", "judge tasks", "judge run", "delete"]))
    def a_user_interferes(self, data: st.DataObject, wish: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.runs)))
        chosen = data.draw(st.lists(st.sampled_from(sorted(RETRIES)), unique=True))
        match wish:
            case "clear":
                self.clear(name, chosen)
            case "judge tasks":
                self.judge_tasks(name, chosen, data.draw(st.sampled_from([T.SUCCESS, T.FAILED, T.SKIPPED])))
            case "judge run":
                self.judge_run(name, data.draw(st.sampled_from(sorted(RUN_ENDS))))
            case _:
                assert self.world.store.runs.delete(self.world.run(name))
                del self.runs[name]

    def clear(self, name: str, chosen: list[str]) -> None:
        run = self.runs[name]
        assert self.world.store.tasks.clear(self.world.run(name), self.pks(name, chosen), now=NOW) == len(chosen)
        run.dirty = True
        run.state = R.QUEUED if run.state in RUN_ENDS else run.state
        for task_id in chosen:
            one = run.tasks[task_id]
            one.state, one.same_try, one.max_tries = T.NONE, False, one.tries + RETRIES[task_id]

    def judge_tasks(self, name: str, chosen: list[str], state: TaskState) -> None:
        run = self.runs[name]
        willing = [run.tasks[task_id] for task_id in chosen if run.tasks[task_id].state in origins(state)]
        pks = self.pks(name, chosen)
        assert self.world.store.tasks.set_state(self.world.run(name), pks, state, now=NOW) == len(willing)
        run.dirty = True
        for one in willing:
            one.state = state

    def judge_run(self, name: str, state: RunState) -> None:
        run = self.runs[name]
        self.world.store.runs.set_state(self.world.run(name), state, now=NOW)
        run.state, run.dirty = state, False
        for one in run.tasks.values():
            one.state = one.state if one.state in TASK_ENDS else T.SKIPPED

    @invariant()
    def the_store_is_as_the_model_says(self) -> None:
        found = {run.run_id: run.state for run in self.world.store.runs.latest()}
        assert found == {name: run.state for name, run in self.runs.items()}
        for name, run in self.runs.items():
            instances = {one.task_id: one for one in self.world.instances(name)}
            for task_id, one in run.tasks.items():
                seen = instances[task_id]
                assert (seen.state, seen.try_number, seen.max_tries) == (one.state, one.tries, one.max_tries)

    @invariant()
    def nothing_contradicts_itself(self) -> None:
        assert self.world.store.upkeep.check() == []
        assert self.world.forbidden_moves() == []

    @invariant()
    def each_worker_knows_what_is_its_own(self) -> None:
        for owner in OWNERS:
            mine = {one.attempt for one in self.tasks(T.RUNNING) if one.owner == owner}
            assert self.world.store.attempts.still_mine(owner) == mine

    @invariant()
    def whatever_changed_will_be_looked_at(self) -> None:
        dirty = {row[0] for row in self.world.sql("SELECT run_id FROM dag_run WHERE dirty = 1 AND state = 'running'")}
        assert dirty == {name for name, run in self.runs.items() if run.dirty and run.state is R.RUNNING}


Engine.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
TestAnyOrderOfVerbs = Engine.TestCase
