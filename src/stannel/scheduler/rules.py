"""Trigger rules: whether a task may start, judged from how its upstream tasks ended so far. Pure."""

from collections.abc import Callable
from enum import StrEnum

import msgspec

from stannel.model.dag import TriggerRule


class Verdict(StrEnum):
    """What becomes of a task that has not started yet."""

    RUN = "run"
    WAIT = "wait"
    SKIP = "skip"
    UPSTREAM_FAILED = "upstream_failed"


class Upstream(msgspec.Struct):
    """How the direct upstream instances of a task stand; `done` counts every ended one, removed ones included.

    The `setup_` counts repeat those of them that are setup tasks.
    """

    total: int = 0
    success: int = 0
    failed: int = 0
    upstream_failed: int = 0
    skipped: int = 0
    removed: int = 0
    done: int = 0
    setup_total: int = 0
    setup_success: int = 0
    setup_failed: int = 0
    setup_skipped: int = 0
    setup_done: int = 0


def judge(rule: TriggerRule, upstream: Upstream) -> Verdict:
    """The verdict of a rule, as early as it is certain. A task without upstream tasks runs, whatever its rule."""
    if not upstream.total:
        return Verdict.RUN
    return _RULES[rule](upstream)


def always(up: Upstream) -> Verdict:
    return Verdict.RUN


def all_success(up: Upstream) -> Verdict:
    if up.failed or up.upstream_failed:
        return Verdict.UPSTREAM_FAILED
    if up.skipped:
        return Verdict.SKIP
    return _run_when_all_done(up)


def all_failed(up: Upstream) -> Verdict:
    if up.success or up.skipped:
        return Verdict.SKIP
    if up.done < up.total:
        return Verdict.WAIT
    return Verdict.RUN if up.failed or up.upstream_failed else Verdict.SKIP


def all_done(up: Upstream) -> Verdict:
    return _run_when_all_done(up)


def all_done_min_one_success(up: Upstream) -> Verdict:
    if up.done < up.total:
        return Verdict.WAIT
    return _run_with_a_success(up)


def all_done_setup_success(up: Upstream) -> Verdict:
    """A teardown runs when all is done and a setup succeeded; without one there is nothing to tear down."""
    if up.setup_total and up.setup_done == up.setup_total and not up.setup_success:
        return Verdict.UPSTREAM_FAILED if up.setup_failed else Verdict.SKIP
    return _run_when_all_done(up)


def all_skipped(up: Upstream) -> Verdict:
    if up.success or up.failed or up.upstream_failed:
        return Verdict.SKIP
    return _run_when_all_done(up)


def one_success(up: Upstream) -> Verdict:
    if not up.success and up.done < up.total:
        return Verdict.WAIT
    return _run_with_a_success(up)


def one_failed(up: Upstream) -> Verdict:
    if up.failed or up.upstream_failed:
        return Verdict.RUN
    return Verdict.SKIP if up.done == up.total else Verdict.WAIT


def one_done(up: Upstream) -> Verdict:
    if up.success or up.failed:
        return Verdict.RUN
    return Verdict.SKIP if up.done == up.total else Verdict.WAIT


def none_failed(up: Upstream) -> Verdict:
    if up.failed or up.upstream_failed:
        return Verdict.UPSTREAM_FAILED
    return _run_when_all_done(up)


def none_failed_min_one_success(up: Upstream) -> Verdict:
    if up.failed or up.upstream_failed:
        return Verdict.UPSTREAM_FAILED
    if up.done < up.total:
        return Verdict.WAIT
    return _run_with_a_success(up)


def none_skipped(up: Upstream) -> Verdict:
    return Verdict.SKIP if up.skipped else _run_when_all_done(up)


def _run_when_all_done(up: Upstream) -> Verdict:
    return Verdict.RUN if up.done == up.total else Verdict.WAIT


def _run_with_a_success(up: Upstream) -> Verdict:
    if up.success:
        return Verdict.RUN
    return Verdict.UPSTREAM_FAILED if up.failed or up.upstream_failed else Verdict.SKIP


_RULES: dict[TriggerRule, Callable[[Upstream], Verdict]] = {
    TriggerRule.ALL_SUCCESS: all_success,
    TriggerRule.ALL_FAILED: all_failed,
    TriggerRule.ALL_DONE: all_done,
    TriggerRule.ALL_DONE_MIN_ONE_SUCCESS: all_done_min_one_success,
    TriggerRule.ALL_DONE_SETUP_SUCCESS: all_done_setup_success,
    TriggerRule.ALL_SKIPPED: all_skipped,
    TriggerRule.ONE_SUCCESS: one_success,
    TriggerRule.ONE_FAILED: one_failed,
    TriggerRule.ONE_DONE: one_done,
    TriggerRule.NONE_FAILED: none_failed,
    TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS: none_failed_min_one_success,
    TriggerRule.NONE_SKIPPED: none_skipped,
    TriggerRule.ALWAYS: always,
}
