"""What counts as a host that makes no progress."""

import pytest

from stannel.triggerer.health import Blocked, Patience, Signs, Verdict, is_importing, judge

PATIENCE = Patience(blocked=2.0, importing=30.0, silent=5.0, starting=20.0)
LIMIT = 1000


def blocked(seconds: float, trigger_id: int | None = 1, *, importing: bool = False) -> Blocked:
    return Blocked(trigger_id, seconds, "f.py:1 in run", is_importing=importing)


@pytest.mark.parametrize(
    ("signs", "verdict"),
    [
        (Signs(has_spoken=True, silent=0.3), Verdict.FINE),
        (Signs(has_spoken=True, silent=5.1), Verdict.SILENT),
        (Signs(has_spoken=False, silent=5.1), Verdict.FINE),
        (Signs(has_spoken=False, silent=20.1), Verdict.SILENT),
        (Signs(has_spoken=True, silent=0.3, blocked=blocked(1.9)), Verdict.FINE),
        (Signs(has_spoken=True, silent=0.3, blocked=blocked(2.1)), Verdict.BLOCKED),
        (Signs(has_spoken=True, silent=0.3, blocked=blocked(2.1, None)), Verdict.FINE),
        (Signs(has_spoken=True, silent=0.3, blocked=blocked(5.1, None)), Verdict.BLOCKED),
        (Signs(has_spoken=True, silent=0.3, blocked=blocked(29.0, importing=True)), Verdict.FINE),
        (Signs(has_spoken=True, silent=0.3, blocked=blocked(31.0, importing=True)), Verdict.BLOCKED),
        (Signs(has_spoken=True, silent=5.1, blocked=blocked(6.0)), Verdict.SILENT),
        (Signs(has_spoken=True, silent=0.3, memory=1000), Verdict.FINE),
        (Signs(has_spoken=True, silent=0.3, memory=1001), Verdict.TOO_LARGE),
    ],
)
def test_the_verdict_on_a_host(signs: Signs, verdict: Verdict) -> None:
    assert judge(signs, PATIENCE, LIMIT) is verdict


def test_an_import_is_seen_in_the_stack() -> None:
    assert is_importing(['  File "<frozen importlib._bootstrap>", line 1176, in _find_and_load'])
    assert not is_importing(['  File "/dags/trigs.py", line 3, in run'])
