"""One table decides how an attempt ended."""

import os
from datetime import UTC, datetime, timedelta

import pytest
from supervisor.bench import BEGAN, make_attempt

from stannel.model.states import TaskState as State
from stannel.protocol.requests import (
    AwaitInputTask,
    DeferTask,
    RescheduleTask,
    RetryTask,
    SucceedTask,
    TaskState,
    Terminal,
)
from stannel.supervisor.decide import Halt, by_exit, by_halt, by_message
from stannel.supervisor.exits import Exit

NOW = BEGAN + timedelta(hours=1)
LATER = NOW + timedelta(days=1)


@pytest.mark.parametrize(
    ("message", "state"),
    [
        (SucceedTask(end_date=NOW), State.SUCCESS),
        (TaskState(state="failed", end_date=NOW), State.FAILED),
        (TaskState(state="skipped"), State.SKIPPED),
        (TaskState(state="removed"), State.REMOVED),
        (RetryTask(end_date=NOW), State.UP_FOR_RETRY),
        (RescheduleTask(end_date=NOW, reschedule_date=LATER), State.UP_FOR_RESCHEDULE),
        (DeferTask(classpath="a.B", next_method="resume"), State.DEFERRED),
        (AwaitInputTask(next_method="resume"), State.FAILED),
    ],
)
@pytest.mark.parametrize("should_retry", [False, True])
def test_the_message_is_the_outcome(message: Terminal, state: State, should_retry: bool):
    outcome = by_message(make_attempt(should_retry=should_retry), message, NOW)
    assert outcome.state == state
    assert not outcome.unreported


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (Exit(status=0), "its process exited without reporting a result"),
        (Exit(status=3 << 8), "its process exited with code 3"),
        (Exit(status=9), "its process was killed by SIGKILL; often that means the machine ran out of memory"),
        (Exit(status=15), "its process was killed by SIGTERM"),
        (Exit(status=137 << 8), "its process exited with code 137: it was killed by SIGKILL; often that means"),
        (Exit(status=143 << 8), "its process exited with code 143: it was killed by SIGTERM"),
        (Exit(), "its process ended, and its exit code is not known"),
        (Exit(refused="no process could be forked: out of pids"), "no process could be forked: out of pids"),
    ],
)
def test_without_a_message_it_fails_or_is_retried_and_the_reason_says_why(end: Exit, words: str):
    failed, retried = (by_exit(make_attempt(should_retry=retry), end, NOW) for retry in (False, True))
    assert (failed.state, retried.state) == (State.FAILED, State.UP_FOR_RETRY)
    assert str(failed.reason).startswith(words)
    assert failed.unreported
    assert retried.unreported


def test_a_halt_decides_the_state_or_leaves_it_to_the_retries():
    stopped = by_halt(make_attempt(should_retry=True), Halt("by ada", State.SUCCESS), NOW, was_told=False)
    assert (stopped.state, stopped.reason, stopped.unreported) == (State.SUCCESS, "by ada", True)
    assert by_halt(make_attempt(should_retry=True), Halt("x"), NOW, was_told=True).state == State.UP_FOR_RETRY
    assert by_halt(make_attempt(), Halt("x"), NOW, was_told=True).state == State.FAILED
    assert not by_halt(make_attempt(), Halt("x"), NOW, was_told=True).unreported


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        (BEGAN + timedelta(minutes=5), BEGAN + timedelta(minutes=5)),
        (LATER, NOW),
        (BEGAN - timedelta(days=1), NOW),
    ],
)
def test_an_end_outside_the_attempt_is_not_believed(told: datetime, kept: datetime):
    assert by_message(make_attempt(), SucceedTask(end_date=told), NOW).end_date == kept


def test_a_retry_carries_its_delay_and_a_reason_of_bearable_length():
    outcome = by_message(make_attempt(), RetryTask(end_date=NOW, retry_delay_seconds=90, retry_reason="x" * 9999), NOW)
    assert (outcome.retry_delay, outcome.retry_at) == (90, NOW + timedelta(seconds=90))
    assert len(str(outcome.reason)) == 2000


def test_a_reschedule_says_when():
    outcome = by_message(make_attempt(), RescheduleTask(end_date=NOW, reschedule_date=LATER), NOW)
    assert outcome.retry_at == LATER


def test_a_status_is_read_as_the_system_writes_it():
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    assert Exit(status=os.waitpid(pid, 0)[1]).words == "exited with code 7"
    assert datetime.now(UTC).tzinfo is UTC
