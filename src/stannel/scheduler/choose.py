"""Which scheduled task instances may be queued now, given pools and limits, and why the others wait. Pure."""

from collections.abc import Iterable

import msgspec

from stannel.model.plan import Candidate


class Pool(msgspec.Struct, frozen=True):
    """The slots of a pool: how many it has, and how many nobody holds. `total` None: as many as anyone asks for."""

    total: int | None
    free: int = 0


class Limits(msgspec.Struct):
    """How many instances may be queued or running at once. What is not named here is not limited."""

    parallelism: int | None = None
    # max_active_tasks, by run.
    per_run: dict[int, int] = {}
    # max_active_tis_per_dag and max_active_tis_per_dagrun, by (dag_id, task_id).
    per_task: dict[tuple[str, str], int] = {}
    per_task_in_run: dict[tuple[str, str], int] = {}


class Usage(msgspec.Struct):
    """What is held now, by instances that are queued or running."""

    pools: dict[str, Pool]
    limits: Limits = msgspec.field(default_factory=Limits)
    running: int = 0
    per_run: dict[int, int] = {}
    per_task: dict[tuple[str, str], int] = {}
    per_task_in_run: dict[tuple[int, str], int] = {}


class Choice(msgspec.Struct):
    """Who is queued, and for everybody else a sentence that says what it waits for.

    Nobody who needs something exhausted can be chosen now: the caller may ask for more candidates without those.
    """

    chosen: list[int] = []
    blocked: dict[int, str] = {}
    exhausted_pools: set[str] = set()
    exhausted_runs: set[int] = set()
    full: bool = False


def choose(candidates: Iterable[Candidate], usage: Usage) -> Choice:
    """Take candidates in the given order as far as pools and limits allow.

    One that fits its pool but not its free slots holds the pool for itself: otherwise small tasks that come later could
    keep a large one waiting for ever.
    """
    choosing = _Choosing(usage)
    for one in candidates:
        reason = choosing.obstacle(one)
        if reason is None:
            choosing.take(one)
        else:
            choosing.choice.blocked[one.pk] = reason
    return choosing.choice


class _Choosing:
    """The usage as it grows with every candidate taken."""

    def __init__(self, usage: Usage) -> None:
        self.choice = Choice()
        self.pools, self.limits, self.running = usage.pools, usage.limits, usage.running
        self.free = {name: pool.free for name, pool in usage.pools.items() if pool.total is not None}
        self.per_run = dict(usage.per_run)
        self.per_task = dict(usage.per_task)
        self.per_task_in_run = dict(usage.per_task_in_run)

    def obstacle(self, one: Candidate) -> str | None:
        """What keeps a candidate from being queued now, as a sentence. None: nothing does."""
        # The pool comes last: only a candidate that could run otherwise may hold it for itself.
        return self._never_fits(one) or self._over_limit(one) or self._waits_for_pool(one)

    def take(self, one: Candidate) -> None:
        self.choice.chosen.append(one.pk)
        self.running += 1
        self.per_run[one.run_pk] = self.per_run.get(one.run_pk, 0) + 1
        task, in_run = (one.dag_id, one.task_id), (one.run_pk, one.task_id)
        self.per_task[task] = self.per_task.get(task, 0) + 1
        self.per_task_in_run[in_run] = self.per_task_in_run.get(in_run, 0) + 1
        if one.pool in self.free:
            self.free[one.pool] -= one.pool_slots
            if self.free[one.pool] <= 0:
                self.choice.exhausted_pools.add(one.pool)

    def _never_fits(self, one: Candidate) -> str | None:
        pool = self.pools.get(one.pool)
        if pool is None:
            return f"There is no pool {one.pool!r}; create it, or give the task another pool."
        if pool.total is not None and one.pool_slots > pool.total:
            return (
                f"It asks for {one.pool_slots} slots of the pool {one.pool!r}, which has only {pool.total}; "
                "enlarge the pool, or let the task ask for fewer."
            )
        return None

    def _over_limit(self, one: Candidate) -> str | None:
        limits, choice = self.limits, self.choice
        if limits.parallelism is not None and self.running >= limits.parallelism:
            choice.full = True
            return f"All {limits.parallelism} places for tasks are taken (parallelism)."
        limit = limits.per_run.get(one.run_pk)
        if limit is not None and self.per_run.get(one.run_pk, 0) >= limit:
            choice.exhausted_runs.add(one.run_pk)
            return f"Its run already has {limit} tasks queued or running (max_active_tasks)."
        task = (one.dag_id, one.task_id)
        limit = limits.per_task.get(task)
        if limit is not None and self.per_task.get(task, 0) >= limit:
            return f"The DAG already has {limit} instances of this task queued or running (max_active_tis_per_dag)."
        limit = limits.per_task_in_run.get(task)
        if limit is not None and self.per_task_in_run.get((one.run_pk, one.task_id), 0) >= limit:
            return f"Its run already has {limit} instances of this task queued or running (max_active_tis_per_dagrun)."
        return None

    def _waits_for_pool(self, one: Candidate) -> str | None:
        free = self.free.get(one.pool)
        if free is None:
            return None
        if one.pool in self.choice.exhausted_pools:
            return f"The pool {one.pool!r} has no slot left for it: others that hold or await slots come first."
        if one.pool_slots <= free:
            return None
        self.choice.exhausted_pools.add(one.pool)
        return f"It waits for {one.pool_slots} slots of the pool {one.pool!r}; {max(free, 0)} are free."
