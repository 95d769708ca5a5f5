"""The decision about a job that lives elsewhere, as a table, and against every crash there can be."""

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
from msgspec import UNSET

from stannel.model.resume import (
    Ask,
    Decision,
    Done,
    Fetch,
    Find,
    GiveUp,
    Known,
    NoteId,
    NoteToken,
    Patience,
    Poll,
    Read,
    Step,
    Submit,
    Verdict,
    Wait,
    decision,
    learn,
    next_step,
)

V = Verdict


def read(token: str | None = None, external_id: Any = UNSET, **fields: Any) -> Known:
    """What is known once the store was read."""
    return learn(Known(**fields), Read(), (token, external_id))


def judged(verdict: Verdict, external_id: Any = 7, **fields: Any) -> Known:
    known = read("t", external_id, **{"patience": Patience(()), **fields})
    return learn(known, Ask(external_id), verdict)


NEW = read()
TABLE: list[tuple[str, Known, Step, Decision | None]] = [
    ("nothing is known yet", Known(), Read(), None),
    ("no store: just submit", Known(has_store=False), Submit(None), Decision.NO_STORE),
    ("nothing is stored: note a token first", NEW, NoteToken(replaces=False), None),
    ("then submit with it", learn(NEW, NoteToken(replaces=False), "t"), Submit("t"), Decision.FRESH_SUBMIT),
    ("a token of an earlier try, and nobody can look", read("t"), Submit("t"), Decision.FRESH_SUBMIT),
    ("a token of an earlier try: look for its job", read("t", can_find=True), Find("t"), None),
    ("looked, and there is none", learn(read("t", can_find=True), Find("t"), None), Submit("t"), Decision.FRESH_SUBMIT),
    ("looked, and there is one: note it", learn(read("t", can_find=True), Find("t"), 0), NoteId(0), None),
    ("an id is stored", read("t", 7), Ask(7), None),
    ("zero is an id", read("t", 0), Ask(0), None),
    ("an empty text is an id", read("t", ""), Ask(""), None),
    ("False is an id", read("t", False), Ask(False), None),
    ("an id without a token, of another engine", read(None, 7), Ask(7), None),
    ("it runs", judged(V.ACTIVE), Poll(7), Decision.RECONNECT),
    ("it ran, and was waited for", learn(judged(V.ACTIVE), Poll(7), None), Fetch(7), None),
    ("it has succeeded", judged(V.SUCCEEDED), Fetch(7), Decision.ALREADY_SUCCEEDED),
    ("it has failed: another token first", judged(V.FAILED), NoteToken(replaces=True), None),
    (
        "then another job",
        learn(judged(V.FAILED), NoteToken(replaces=True), "u"),
        Submit("u"),
        Decision.TERMINAL_RESUBMIT,
    ),
    ("nobody knows", judged(V.UNKNOWN), GiveUp(None), Decision.UNKNOWN_STATUS),
    ("nobody knows, with consent", judged(V.UNKNOWN, resubmits_unknown=True), NoteToken(replaces=True), None),
    ("submitted: note the id before anything else", learn(NEW, Submit("t"), 7), NoteId(7), None),
    ("submitted without an id", learn(NEW, Submit("t"), None), NoteId(None), None),
    ("noted: wait", learn(learn(NEW, Submit("t"), 7), NoteId(7), None), Poll(7), None),
    ("the end", learn(NEW, Fetch(7), "result"), Done("result"), None),
    ("a result of None is a result", learn(NEW, Fetch(7), None), Done(None), None),
]


@pytest.mark.parametrize(("known", "step", "made"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_each_thing_known_has_one_next_step(known: Known, step: Step, made: Decision | None) -> None:
    assert next_step(known) == step
    assert decision(known, step) is made


def test_a_status_that_cannot_be_had_is_asked_for_again_and_then_fails_the_try() -> None:
    known, error = read("t", 7, patience=Patience((0.5, 2.0))), OSError("no route")
    steps = []
    while not isinstance(step := next_step(known), GiveUp):
        steps.append(step)
        known = learn(known, step, error if isinstance(step, Ask) else None)
    assert steps == [Ask(7), Wait(0.5), Ask(7), Wait(2.0), Ask(7)]
    assert step.error is error


def test_a_status_that_says_nothing_may_say_more_later() -> None:
    known = learn(read("t", 7, patience=Patience((1.0,))), Ask(7), V.UNKNOWN)
    assert next_step(known) == Wait(1.0)
    known = learn(learn(known, Wait(1.0), None), Ask(7), V.SUCCEEDED)
    assert next_step(known) == Fetch(7)


# --- every crash there can be ----------------------------------------------------------------------------------------


class Crash(Exception):
    """The process is gone; what it knew is forgotten."""


@dataclass
class World:
    """A store and another system, both of which outlive an attempt."""

    can_find: bool
    stored: dict[str, Any] = field(default_factory=dict)
    jobs: list[str | None] = field(default_factory=list)
    fails: set[int] = field(default_factory=set)
    tokens: int = 0
    warned: int = 0

    def attempt(self, crash: tuple[int, str] | None) -> Any:
        """One try; with a crash, it dies before or after the effect of that step."""
        known, number = Known(can_find=self.can_find, patience=Patience(())), 0
        while not isinstance(step := next_step(known), Done):
            if crash == (number, "before"):
                raise Crash
            answer = self.do(known, step)
            if crash == (number, "after"):
                raise Crash
            known, number = learn(known, step, answer), number + 1
        return step.result

    def do(self, known: Known, step: Step) -> Any:
        match step:
            case Read():
                return self.stored.get("token"), self.stored.get("id", UNSET)
            case NoteToken(replaces):
                self.tokens += 1
                self.stored["token"] = f"token-{self.tokens}"
                if replaces:
                    self.stored.pop("id")
                return self.stored["token"]
            case Find(token):
                return self.jobs.index(token) if token in self.jobs else None
            case Submit(token):
                self.warned += bool(not known.can_find and not known.is_new_token)
                self.jobs.append(token)
                return len(self.jobs) - 1
            case NoteId(external_id):
                self.stored["id"] = external_id
                return None
            case Ask(external_id):
                return V.FAILED if external_id in self.fails else V.ACTIVE
            case Poll(external_id):
                if external_id in self.fails:
                    raise RuntimeError("the job failed")
                return None
            case Fetch(external_id):
                return f"result of {external_id}"
        raise AssertionError(step)

    def tries(self, *crashes: tuple[int, str]) -> Any:
        """Tries that die at these points, and then one that does not."""
        for crash in crashes:
            try:
                return self.attempt(crash)
            except (Crash, RuntimeError):
                continue
        return self.attempt(None)


POINTS = list(product(range(8), ("before", "after")))
SUBMIT = (2, "after")
NOTE = (3, "before")


@pytest.mark.parametrize("first", POINTS)
def test_with_find_job_there_is_one_job_whatever_two_tries_die_of(first: tuple[int, str]) -> None:
    for second in POINTS:
        world = World(can_find=True)
        assert world.tries(first, second) == "result of 0", second
        assert len(world.jobs) == 1, second


@pytest.mark.parametrize("point", POINTS)
def test_without_find_job_exactly_the_documented_window_makes_a_second_job(point: tuple[int, str]) -> None:
    world = World(can_find=False)
    result = world.tries(point)
    is_in_window = point in (SUBMIT, NOTE)
    assert len(world.jobs) == (2 if is_in_window else 1)
    assert result == f"result of {len(world.jobs) - 1}"
    assert len(set(world.jobs)) == 1, "both jobs were given the same token"
    # Who dies with the token stored and nothing submitted is warned about as well: nobody can tell the two apart.
    assert world.warned == (point in (SUBMIT, NOTE, (1, "after"), (2, "before")))


@pytest.mark.parametrize("first", POINTS)
def test_a_job_that_failed_is_followed_by_one_other_whatever_dies(first: tuple[int, str]) -> None:
    for second in POINTS:
        world = World(can_find=True, fails={0})
        with pytest.raises(RuntimeError):
            world.attempt(None)
        assert world.tries(first, second) == "result of 1", second
        assert world.jobs[0] == "token-1", second
        assert len(set(world.jobs)) == len(world.jobs) == 2, second
