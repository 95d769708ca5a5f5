"""What a scheduler sees of a run and what it decides about it, as data between the pure rules and the store."""

import msgspec

from stannel.model.states import RunState, TaskState


class Instance(msgspec.Struct):
    """A task instance as the planner sees it; `retry_at` is in microseconds."""

    pk: int
    task_id: str
    map_index: int
    state: TaskState
    try_number: int = 0
    retry_at: int | None = None


class Move(msgspec.Struct):
    """An instance that ends without a process, and why."""

    pk: int
    state: TaskState
    note: str | None = None


class Expand(msgspec.Struct):
    """A mapped task whose length is known now: `pk` becomes index 0, and `first_new` to length - 1 are made."""

    pk: int
    task_id: str
    length: int
    first_new: int = 1


class RunPlan(msgspec.Struct):
    """Everything to be done about a run now. `verdict` None: it is still going."""

    schedule: list[int] = []
    moves: list[Move] = []
    expand: list[Expand] = []
    missing: list[str] = []
    verdict: RunState | None = None
    reason: str | None = None


class Candidate(msgspec.Struct):
    """A scheduled instance that waits for a slot."""

    pk: int
    run_pk: int
    dag_id: str
    task_id: str
    pool: str
    pool_slots: int
    priority: int
    version: str = ""
    try_number: int = 0
    same_try: bool = False
