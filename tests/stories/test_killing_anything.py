"""Whatever is killed, whenever: every task ends exactly once, and the store stays consistent."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from stannel.model.run import Run
from stannel.model.states import RUN_ENDS
from stannel.testing import Engine

# A failing story is told again with the same seed: STANNEL_STORY_SEED=...
SEED = int(os.environ.get("STANNEL_STORY_SEED", "20261115"))
KILLS = 24
SECONDS = 150.0

FIVE_HUNDRED_TASKS = """
    import os, random, time
    from datetime import timedelta
    from stannel.sdk import DAG, task

    with DAG("five_hundred", schedule=None, max_active_tasks=24):
        @task(retries=200, retry_delay=timedelta(0))
        def work(number, before=None):
            time.sleep(random.Random(number).uniform(0, 0.4))
            with open(os.environ["STORY_EFFECTS"], "a") as effects:
                effects.write(f"{number}\\n")
            return number

        layer = [work.override(task_id=f"t{number}")(number) for number in range(100)]
        for depth in range(1, 5):
            layer = [
                work.override(task_id=f"t{depth * 100 + column}")(depth * 100 + column, before=above)
                for column, above in enumerate(layer)
            ]
"""


class Processes:
    """The engine's processes, told apart by what they are."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find(self) -> dict[str, list[int]]:
        """Process ids by kind: scheduler, supervisor, fork server, task."""
        commands, parents = {}, {}
        for pid in self._engine.processes():
            with contextlib.suppress(OSError):
                commands[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
                parents[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found: dict[str, list[int]] = {"scheduler": [], "supervisor": [], "fork server": [], "task": []}
        for pid, command in commands.items():
            found[self._kind(pid, command, commands, parents)].append(pid)
        return found

    def _kind(self, pid: int, command: bytes, commands: dict[int, bytes], parents: dict[int, int]) -> str:
        if b"standalone" in command:
            return "scheduler"
        if b"stannel.executors.worker" in command:
            return "supervisor"
        above = 0
        while (pid := parents.get(pid, 0)) in commands and b"stannel.supervisor" in commands[pid]:
            above += 1
        # The base server stands at the top, a DAG file's server below it, and below that the attempts.
        return "fork server" if above < 2 else "task"


@pytest.mark.timeout(SECONDS + 60)
def test_five_hundred_tasks_survive_the_killing_of_anything(engine: Engine, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    effects = tmp_path / "effects"
    effects.touch()
    engine.environ["STORY_EFFECTS"] = str(effects)
    engine.add_dag_file("five_hundred.py", FIVE_HUNDRED_TASKS)
    engine.start()
    run = engine.trigger("five_hundred")

    killed = kill_at_random(engine, run, chance)
    ended = engine.wait_for_run(run, seconds=SECONDS)

    successes = Counter(one.task_id for one in engine.store.attempts.of_run(run) if one.state == "success")
    assert ended.state == "success", f"seed {SEED}, killed {killed}: {Counter(engine.states(run).values())}"
    assert Counter(engine.states(run).values()) == {"success": 500}
    assert len(successes) == 500
    assert set(successes.values()) == {1}
    assert {int(line) for line in effects.read_text().splitlines()} == set(range(500))
    assert engine.store.upkeep.check() == []
    assert all(killed[kind] for kind in ("scheduler", "supervisor", "fork server", "task")), killed


def kill_at_random(engine: Engine, run: Run, chance: random.Random) -> Counter[str]:
    """Kill one process after another until enough died or the run has ended; how many of each kind."""
    killed: Counter[str] = Counter()
    processes = Processes(engine)
    # Each kind has its turn before chance alone decides.
    turns = ["scheduler", "supervisor", "fork server", "task"]
    chance.shuffle(turns)
    while sum(killed.values()) < KILLS:
        time.sleep(chance.uniform(0.05, 0.4))
        if engine.store.runs.get(run.dag_id, run.run_id).state in RUN_ENDS:
            break
        found = processes.find()
        kind = turns[0] if turns else chance.choice(["scheduler", "supervisor", "fork server", "task", "task"])
        if not found[kind]:
            continue
        turns = turns[1:]
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(sorted(found[kind])), signal.SIGKILL)
            killed[kind] += 1
        if kind == "scheduler":
            engine.start()
    return killed
