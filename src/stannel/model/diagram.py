"""Draws the page about states from the tables of moves, so that what people read is what the engine does.

`python -m stannel.model.diagram docs/concepts/states.md` writes the page again; without a path it is printed.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from stannel.model.states import (
    ATTEMPT_MOVES,
    RUN_MOVES,
    TASK_MOVES,
    TRIGGER_MOVES,
    AttemptState,
    RunState,
    State,
    TaskState,
    TriggerState,
)

_COMMAND = "python -m stannel.model.diagram docs/concepts/states.md"

_PAGE = f"""\
# States

<!-- Generated from the tables of moves in src/stannel/model/states.py. To write it again: {_COMMAND} -->

Every change of state is a move in one of four tables. A move that is not in its table cannot be written: the statement
that would make it names the states it may start from, and changes nothing when somebody else was faster.

## A run

{{runs}}

A finished run is taken up again when tasks in it are cleared. A user may correct its verdict.

## A task instance

{{tasks}}

The drawing leaves out what is possible almost everywhere: {{anywhere}}. The whole table:

{{table}}

## An attempt

One try at a task instance. Whatever comes after `running` is final; a retry is a new attempt.

{{attempts}}

## A trigger

What a deferred task waits for. No row is `gone`: a trigger that fired, failed or was stopped is deleted. One that a
person ended is `killed` until its `on_kill` has been called for, once; one whose wait took too long is `ended` until
its owner has stopped it.

{{triggers}}
"""


def states_page() -> str:
    """The text of `docs/concepts/states.md`."""
    everywhere = _reached_from_everywhere(TASK_MOVES)
    road = {
        state: frozenset(target for target in targets if target not in everywhere or _is_road(state, target))
        for state, targets in TASK_MOVES.items()
    }
    return _PAGE.format(
        runs=_diagram(RUN_MOVES, start=RunState.QUEUED),
        tasks=_diagram(road, start=TaskState.NONE),
        anywhere=_anywhere(everywhere),
        table=_table(TASK_MOVES),
        attempts=_diagram(ATTEMPT_MOVES, start=AttemptState.QUEUED),
        triggers=_diagram(TRIGGER_MOVES, start=TriggerState.WAITING),
    )


def _is_road(state: TaskState, target: TaskState) -> bool:
    # From these two the engine itself ends a task; elsewhere the same move is mostly a user's correction.
    return state in (TaskState.NONE, TaskState.RUNNING) and target is not TaskState.NONE


def _reached_from_everywhere(moves: Mapping[TaskState, frozenset[TaskState]]) -> list[TaskState]:
    return [target for target in moves if all(target in targets for state, targets in moves.items() if state != target)]


def _anywhere(everywhere: list[TaskState]) -> str:
    ends = [f"`{state}`" for state in everywhere if state is not TaskState.NONE]
    return f"a user may set a task to {', '.join(ends[:-1])} or {ends[-1]}, and clearing it takes it back to `none`"


def _diagram(moves: Mapping[State, frozenset[State]], *, start: State) -> str:
    lines: list[str] = ["```mermaid", "stateDiagram-v2", f"    [*] --> {start}"]
    for state, targets in moves.items():
        lines += [f"    {state} --> {target}" for target in _in_order(moves, targets)]
    lines += [f"    {state} --> [*]" for state, targets in moves.items() if not targets]
    return "\n".join([*lines, "```"])


def _table(moves: Mapping[State, frozenset[State]]) -> str:
    rows: list[str] = [
        f"| `{state}` | {', '.join(f'`{one}`' for one in _in_order(moves, to))} |" for state, to in moves.items()
    ]
    return "\n".join(["| from | to |", "|---|---|", *rows])


def _in_order(moves: Mapping[State, frozenset[State]], targets: frozenset[State]) -> list[State]:
    return [state for state in moves if state in targets]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(states_page(), encoding="utf-8")
    else:
        sys.stdout.write(states_page())
