import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stannel.model.dag import TriggerRule
from stannel.scheduler.rules import Upstream, Verdict, judge

R, V = TriggerRule, Verdict

# One letter per upstream task: s success, f failed, u upstream_failed, k skipped, r removed, . not ended;
# capital letters are setup tasks.
FIELDS = {"s": "success", "f": "failed", "u": "upstream_failed", "k": "skipped", "r": "removed"}


def upstream(letters: str) -> Upstream:
    up = Upstream(total=len(letters))
    for letter in letters:
        if letter == ".":
            continue
        field = FIELDS[letter.lower()]
        setattr(up, field, getattr(up, field) + 1)
        up.done += 1
    setups = [letter.lower() for letter in letters if letter.isupper()]
    up.setup_total = up.setup_done = len(setups)
    up.setup_success = setups.count("s")
    up.setup_failed = setups.count("f") + setups.count("u")
    up.setup_skipped = setups.count("k")
    return up


def with_waiting_setup(letters: str) -> Upstream:
    up = upstream(letters)
    up.total += 1
    up.setup_total += 1
    return up


# What each rule says in each case: R run, . wait, K skip, U upstream_failed.
TABLE = """
                             ..  s.  f.  u.  k.  r.  ss  sf  su  sk  fk  ff  fu  uu  kk  rs  rf  rk  rr
all_success                  .   .   U   U   K   .   R   U   U   K   U   U   U   U   K   R   U   K   R
all_failed                   .   K   .   .   K   .   K   K   K   K   K   R   R   R   K   K   R   K   K
all_done                     .   .   .   .   .   .   R   R   R   R   R   R   R   R   R   R   R   R   R
all_done_min_one_success     .   .   .   .   .   .   R   R   R   R   U   U   U   U   K   R   U   K   K
all_done_setup_success       .   .   .   .   .   .   R   R   R   R   R   R   R   R   R   R   R   R   R
all_skipped                  .   K   K   K   .   .   K   K   K   K   K   K   K   K   R   K   K   R   R
one_success                  .   R   .   .   .   .   R   R   R   R   U   U   U   U   K   R   U   K   K
one_failed                   .   .   R   R   .   .   K   R   R   K   R   R   R   R   K   K   R   K   K
one_done                     .   R   R   .   .   .   R   R   R   R   R   R   R   K   K   R   R   K   K
none_failed                  .   .   U   U   .   .   R   U   U   R   U   U   U   U   R   R   U   R   R
none_failed_min_one_success  .   .   U   U   .   .   R   U   U   R   U   U   U   U   K   R   U   K   K
none_skipped                 .   .   .   .   K   .   R   R   R   K   K   R   R   R   K   R   R   K   R
always                       R   R   R   R   R   R   R   R   R   R   R   R   R   R   R   R   R   R   R
"""
CASES, *ROWS = [line.split() for line in TABLE.strip().splitlines()]
LETTERS = {"R": V.RUN, ".": V.WAIT, "K": V.SKIP, "U": V.UPSTREAM_FAILED}


def test_the_table_covers_every_rule() -> None:
    assert [name for name, *_ in ROWS] == list(TriggerRule)


@pytest.mark.parametrize(
    ("rule", "case", "expected"),
    [
        (TriggerRule(name), case, LETTERS[letter])
        for name, *letters in ROWS
        for case, letter in zip(CASES, letters, strict=True)
    ],
)
def test_a_rule_judges_as_documented(rule: TriggerRule, case: str, expected: Verdict) -> None:
    assert judge(rule, upstream(case)) is expected


@pytest.mark.parametrize("rule", list(TriggerRule))
def test_a_task_without_upstream_tasks_runs_whatever_its_rule(rule: TriggerRule) -> None:
    assert judge(rule, Upstream()) is V.RUN


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("Ss", V.RUN),
        ("Sf", V.RUN),
        ("Su", V.RUN),
        ("Sk", V.RUN),
        ("S.", V.WAIT),
        ("F.", V.UPSTREAM_FAILED),
        ("U.", V.UPSTREAM_FAILED),
        ("K.", V.SKIP),
        ("KFs", V.UPSTREAM_FAILED),
        ("SFs", V.RUN),
        ("SK.", V.WAIT),
        ("ff", V.RUN),
    ],
)
def test_a_teardown_runs_after_a_successful_setup_and_shares_the_fate_of_any_other(
    letters: str, expected: Verdict
) -> None:
    assert judge(R.ALL_DONE_SETUP_SUCCESS, upstream(letters)) is expected


def test_a_teardown_waits_for_the_setups_that_may_still_succeed() -> None:
    assert judge(R.ALL_DONE_SETUP_SUCCESS, with_waiting_setup("Fs")) is V.WAIT


endings = st.lists(st.sampled_from("sfukrSFUK"), min_size=1, max_size=7)


@given(st.sampled_from(TriggerRule), endings)
def test_a_verdict_is_never_taken_back_as_more_upstream_tasks_end(rule: TriggerRule, letters: list[str]) -> None:
    verdicts = []
    for ended in range(len(letters) + 1):
        up = upstream("".join(letters[:ended]))
        rest = letters[ended:]
        up.total += len(rest)
        up.setup_total += sum(letter.isupper() for letter in rest)
        verdicts.append(judge(rule, up))
    for earlier, later in itertools.pairwise(verdicts):
        # Both mean "will not run": a failure that arrives after a skip may still name itself.
        allowed = {V.SKIP, V.UPSTREAM_FAILED} if earlier is V.SKIP else {earlier}
        assert earlier is V.WAIT or later in allowed
    assert verdicts[-1] is not V.WAIT


@given(st.sampled_from(TriggerRule), endings, st.randoms())
def test_the_order_in_which_upstream_tasks_ended_does_not_matter(
    rule: TriggerRule, letters: list[str], random: object
) -> None:
    shuffled = list(letters)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert judge(rule, upstream("".join(letters))) is judge(rule, upstream("".join(shuffled)))
