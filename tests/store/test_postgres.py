"""What only PostgreSQL has: a server that may go away, row locks that must not meet head-on, and real interleavings."""

import os
import random
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import text
from store.children import PATIENCE, child, claim_everything, stop_half_way
from store.world import NOW, World, after, open_store, outcome, task
from support.postgres import running_postgres

from stannel.errors import StannelError, StoreUnavailable
from stannel.model.dag import DagSpec
from stannel.model.moments import to_micros
from stannel.model.states import AttemptState, RunState, TaskState
from stannel.scheduler.advance_runs import Advance
from stannel.scheduler.queue_tasks import QueueLimits, queue_tasks
from stannel.scheduler.rescue import rescue_lost_attempts
from stannel.store.attempts import finish_instance
from stannel.store.postgres import connection_string
from stannel.store.runs import mark_dirty, queued_runs, start_run, take_dirty
from stannel.store.signals import wait

T = TaskState


@pytest.fixture
def world(postgres_store):
    world = World(postgres_store)
    yield world
    assert world.forbidden_moves() == []


def await_lock(world: World) -> None:
    """Return once a transaction of this database waits for another one's lock."""
    question = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    deadline = time.monotonic() + PATIENCE
    while not world.sql(question):
        assert time.monotonic() < deadline, "nobody waits"
        time.sleep(0.002)


def until_it_works(question):
    """The answer, once the server is back."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return question()
        except StoreUnavailable:
            assert time.monotonic() < deadline, "the store never came back"


def test_a_finish_that_is_not_committed_hides_its_run_until_it_is(world):
    (running,) = world.running("a")
    with world.store.transaction() as tx:
        mark_dirty(tx, [running.run.pk])
        finish_instance(tx, running.ti_pk, running.attempt_id, outcome(T.SUCCESS), AttemptState.SUCCESS)
        with world.store.transaction() as other:
            assert take_dirty(other, 10) == []
    with world.store.transaction() as other:
        assert [run.pk for run in take_dirty(other, 10)] == [running.run.pk]
    assert world.instance().state is T.SUCCESS


def test_a_finish_during_a_look_at_its_run_has_it_looked_at_again(world):
    first, second = world.running("a", "b")
    world.finish(first)
    with ThreadPoolExecutor(1) as threads:
        with world.store.transaction() as tx:
            assert len(take_dirty(tx, 10)) == 1
            finishing = threads.submit(world.finish, second)
            await_lock(world)
        assert finishing.result(PATIENCE)
    with world.store.transaction() as tx:
        assert len(take_dirty(tx, 10)) == 1


def test_two_schedulers_never_look_at_the_same_run(world):
    world.dag("a")
    for number in range(4):
        world.new_run(str(number))
    world.start()
    with world.store.transaction() as one, world.store.transaction() as two:
        mine, theirs = take_dirty(one, 3), take_dirty(two, 3)
    assert (len(mine), len(theirs)) == (3, 1)
    assert {run.pk for run in mine}.isdisjoint(run.pk for run in theirs)


def test_two_schedulers_do_not_start_one_run_too_many(world):
    """The second counts the running runs only after the first has committed those it started."""
    world.dag("a")
    world.new_run("1")

    def start_if_none_is_running() -> None:
        with world.store.transaction() as tx:
            waiting = queued_runs(tx, to_micros(NOW))
            ((count,),) = tx.all(text("SELECT count(*) FROM dag_run WHERE state = 'running'"))
            for run_pk, _, _ in waiting[: 1 - count]:
                start_run(tx, run_pk, now=to_micros(NOW), deadline=None)

    with ThreadPoolExecutor(1) as threads:
        with world.store.transaction() as tx:
            ((run_pk, _, _),) = queued_runs(tx, to_micros(NOW))
            start_run(tx, run_pk, now=to_micros(NOW), deadline=None)
            world.new_run("2")
            second = threads.submit(start_if_none_is_running)
            await_lock(world)
        second.result(PATIENCE)
    assert [str(world.run(name).state) for name in "12"] == ["running", "queued"]


def test_a_task_can_store_an_xcom_while_its_run_is_being_planned(world):
    (running,) = world.running("a")
    row = {"run_pk": running.run.pk, "task_id": "a", "map_index": -1, "key": "k", "value": "1", "length": None}
    with ThreadPoolExecutor(1) as threads, world.store.transaction() as tx:
        mark_dirty(tx, [running.run.pk])
        assert len(take_dirty(tx, 1)) == 1
        threads.submit(world.store.xcoms.put, [row | {"created_at": 0}]).result(PATIENCE)


def test_a_run_in_which_an_xcom_is_being_stored_can_be_planned(world):
    (running,) = world.running("a")
    with world.store.transaction() as tx:
        mark_dirty(tx, [running.run.pk])
    insert = "INSERT INTO xcom (run_pk, task_id, map_index, key, value, created_at) VALUES (:run, 'a', -1, 'k', '1', 0)"
    with world.store.transaction() as task_tx:
        task_tx.run(text(insert), run=running.run.pk)
        with world.store.transaction() as tx:
            assert len(take_dirty(tx, 1)) == 1


def test_processes_never_claim_the_same_attempt(postgres_url):
    world = World(open_store(postgres_url))
    world.dag(*(f"t{number}" for number in range(30)))
    world.new_run()
    world.advance()
    with child(claim_everything, postgres_url, "one") as one, child(claim_everything, postgres_url, "two") as two:
        assert [one.hear(), two.hear()] == ["ready", "ready"]
        one.tell()
        two.tell()
        claimed = one.hear() + two.hear()
    assert len(claimed) == len(set(claimed)) == 30
    assert world.store.upkeep.check() == []
    world.store.close()


def test_a_server_that_is_not_there_is_named_without_its_password():
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1.*refused") as found:
        open_store("postgresql://me:geheim@127.0.0.1:1/x")
    assert "geheim" not in str(found.value)


def test_a_line_that_went_dead_is_given_up_within_seconds_unless_the_address_says_otherwise():
    line = conninfo_to_dict(connection_string("postgresql+psycopg://me:geheim@db/x"))
    assert (line["host"], line["password"]) == ("db", "geheim")
    assert int(line["keepalives_idle"]) + int(line["keepalives_interval"]) * int(line["keepalives_count"]) == 25
    assert (line["tcp_user_timeout"], line["connect_timeout"]) == ("15000", "10")
    named = conninfo_to_dict(connection_string("postgresql://db/x?connect_timeout=3&keepalives_idle=99"))
    assert (named["connect_timeout"], named["keepalives_idle"], named["keepalives_count"]) == ("3", "99", "3")


def test_a_database_that_the_server_does_not_have_is_named(postgres_server):
    with pytest.raises(StoreUnavailable, match='"nowhere" does not exist'):
        open_store(postgres_server.url("nowhere"))


def test_a_server_that_crashes_is_said_clearly_and_used_again_when_it_is_back():
    with running_postgres(durable=True) as server:
        store = open_store(server.url())
        listener = store.listen("scheduler")
        # Several connections are open, and all of them die.
        with store.transaction(), store.transaction(), store.read():
            pass

        def die_in_the_middle() -> None:
            with store.transaction() as tx:
                ((backend,),) = tx.all(text("SELECT pg_backend_pid()"))
                tx.run(text("UPDATE pool SET slots = 1"))
                os.kill(backend, signal.SIGKILL)
                tx.run(text("UPDATE pool SET slots = 2"))

        before = until_it_works(lambda: listening(store))
        with pytest.raises(StoreUnavailable):
            die_in_the_middle()
        deadline = time.monotonic() + PATIENCE
        while until_it_works(lambda: listening(store)) in ([], before):
            assert time.monotonic() < deadline, "the listener never came back"
        assert wait(listener, PATIENCE), "what was missed meanwhile counts as a wake-up"
        assert store.pools.all()[0].slots == 128
        store.pools.save("default_pool", 5)
        assert wait(listener, PATIENCE)
        assert store.pools.all()[0].slots == 5
        listener.close()
        store.close()


def listening(store) -> list[int]:
    """The server's processes that serve listeners."""
    with store.read() as tx:
        return [row[0] for row in tx.all(text("SELECT pid FROM pg_stat_activity WHERE query = 'LISTEN stannel'"))]


def test_one_error_is_enough_after_a_restart(world):
    store = world.store
    with store.transaction(), store.transaction(), store.transaction():
        pass
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
    with store.transaction() as tx:
        tx.all(text(f"{kill} pg_backend_pid()"))
    failures = 0
    for _ in range(10):
        try:
            store.pools.all()
        except StoreUnavailable:
            failures += 1
    assert failures <= 1


def test_whoever_stands_still_in_a_transaction_loses_it_and_others_go_on(postgres_url):
    store = open_store(postgres_url)
    with store.transaction() as tx:
        name = tx.all(text("SELECT current_database()"))[0][0]
        tx.change(text(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '200ms'"))
    with child(stop_half_way, postgres_url) as other:
        assert other.hear() == "half"
        store.pools.save("default_pool", 7)
    assert store.pools.all()[0].slots == 7
    store.close()


def test_no_session_may_stand_still_for_ever(world):
    with world.store.transaction() as tx:
        assert tx.all(text("SHOW idle_in_transaction_session_timeout")) == [("15s",)]


class Crowd:
    """Two schedulers, two workers and a restless user, on threads, for so many turns each."""

    def __init__(self, world: World, seed: int, turns: int) -> None:
        self.world, self.store, self.turns = world, world.store, turns
        self.chance = random.Random(seed)
        self.clock = iter(range(1, 10**9))
        self.lock = threading.Lock()

    def now(self):
        with self.lock:
            return NOW + timedelta(milliseconds=next(self.clock))

    def scheduler(self, _seed: int) -> None:
        advance = Advance(self.store, max_active_runs=16, max_map_length=100)
        for _ in range(self.turns):
            now = self.now()
            rescue_lost_attempts(self.store, now)
            with self.store.transaction() as tx:
                advance.start_runs(tx, now)
                advance.wake_retries(tx, now)
                advance.end_overdue(tx, now)
                advance.plan_runs(tx, now, most=3)
                queue_tasks(self.store, tx, now, QueueLimits(parallelism=20, max_active_tasks=8, most=10))

    def worker(self, seed: int) -> None:
        chance = random.Random(seed)
        held = []
        for _ in range(self.turns):
            held += self.store.attempts.claim(f"w{seed}", most=4, hostname="h", now=self.now())
            chance.shuffle(held)
            done, held = held[:3], held[3:]
            ends = [chance.choice([T.SUCCESS, T.SUCCESS, T.UP_FOR_RETRY, T.FAILED]) for _ in done]
            results = [outcome(end, end_date=self.now(), retry_at=NOW) for end in ends]
            self.store.attempts.finish(list(zip(done, results, strict=True)))

    def user(self, seed: int) -> None:
        chance = random.Random(seed)
        for turn in range(self.turns // 2):
            run = chance.choice(self.store.runs.latest())
            pks = [one.pk for one in self.store.tasks.of_run(run)]
            some = chance.sample(pks, k=chance.randint(1, len(pks)))
            match chance.randrange(6):
                case 0:
                    self.store.tasks.set_state(run, some, T.SUCCESS, now=self.now())
                case 1:
                    self.store.runs.set_state(run, RunState.FAILED, now=self.now())
                case 2:
                    self.store.runs.sweep()
                case 3:
                    self.save(turn)
                case 4:
                    self.store.dags.pause("d0", paused=chance.random() < 0.3)
                case _:
                    self.store.tasks.clear(run, some, now=self.now())

    def save(self, turn: int) -> None:
        tasks = tuple(task(f"t{number}", retries=2, depends_on_past=True) for number in range(5))
        specs = [DagSpec(dag_id=f"d{number}", tasks=tasks, description=str(turn)) for number in range(3)]
        self.world.save(*specs)


@pytest.mark.parametrize("seed", [1, 2])
def test_schedulers_workers_and_users_never_wait_for_each_other_in_a_circle(world, seed):
    crowd = Crowd(world, seed, turns=40)
    crowd.save(0)
    for dag in range(3):
        for day in range(3):
            world.new_run(f"r{day}", dag_id=f"d{dag}", logical_date=after(day))
    for name in (3, 4):
        world.lease(f"w{name}", seconds=1e6)
    parts = [crowd.scheduler, crowd.scheduler, crowd.worker, crowd.worker, crowd.user]
    with ThreadPoolExecutor(5) as threads:
        futures: list[Future[None]] = [threads.submit(part, seed) for seed, part in enumerate(parts, 1)]
        errors = [one.exception(PATIENCE) for one in futures]
    assert [error for error in errors if isinstance(error, StannelError)] == []
    assert errors == [None] * 5
    assert world.store.upkeep.check() == []
