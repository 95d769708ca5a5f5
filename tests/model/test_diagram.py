import subprocess
import sys
from pathlib import Path

import pytest

from stannel.model.diagram import states_page
from stannel.model.states import ATTEMPT_MOVES, RUN_MOVES, TASK_MOVES, TaskState

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "states.md"


def test_the_page_in_the_docs_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == states_page(), (
        "the tables of moves changed; write the page again: python -m stannel.model.diagram docs/concepts/states.md"
    )


@pytest.mark.parametrize("moves", [RUN_MOVES, ATTEMPT_MOVES])
def test_every_move_of_runs_and_attempts_is_drawn(moves: dict[str, frozenset[str]]) -> None:
    drawn = states_page()
    assert all(f"    {state} --> {target}\n" in drawn for state, targets in moves.items() for target in targets)


def test_every_move_of_a_task_is_in_the_table() -> None:
    rows = dict(line.strip("| ").split(" | ") for line in states_page().splitlines() if line.startswith("| `"))
    told = {state.strip("`"): {one.strip("`") for one in targets.split(", ")} for state, targets in rows.items()}
    assert told == TASK_MOVES


def test_the_road_of_a_task_is_drawn() -> None:
    page = states_page()
    for state, target in [
        ("none", "scheduled"),
        ("scheduled", "queued"),
        ("queued", "running"),
        ("running", "success"),
    ]:
        assert f"    {state} --> {target}\n" in page
    assert f"{TaskState.SUCCESS} --> {TaskState.FAILED}" not in page.split("## A task instance")[1]


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    target = tmp_path / "states.md"
    subprocess.run([sys.executable, "-m", "stannel.model.diagram", str(target)], check=True)
    assert target.read_text(encoding="utf-8") == states_page()
