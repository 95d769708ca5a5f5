"""An attempt ends in exactly one way, whatever its process does."""

import asyncio
import os
import resource
from contextlib import suppress
from pathlib import Path

import pytest
from supervisor.bench import PATIENCE, Bench

from stannel.model.states import TaskState
from stannel.protocol.requests import GetVariable
from stannel.protocol.schema import ErrorCode
from stannel.supervisor.desk import Limits, Refused

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_task_that_succeeds_is_a_success_and_its_words_are_in_the_log(bench: Bench):
    outcome = await bench.run("succeeds")

    assert bench.desk.outcomes == [outcome]
    assert outcome.state == TaskState.SUCCESS
    assert outcome.reason is None
    assert bench.events("task.stdout") == ["hello from succeeds"]
    assert bench.events("task.stderr") == ["and an error without a line break"]
    record = next(record for record in bench.log() if record["logger"] == "mine")
    assert (record["event"], record["level"], record["answer"]) == ("a record", "warning", 42)


async def test_the_log_begins_with_the_start_and_ends_with_the_end(bench: Bench):
    await bench.run("succeeds")

    own = bench.events("stannel.supervisor")
    assert bench.log()[0]["event"] == own[0]
    assert "started as process" in str(own[0])
    assert bench.log()[-1]["event"] == own[-1]
    assert str(own[-1]).startswith("Ended success after ")


@pytest.mark.parametrize(
    ("kind", "state"),
    [("fails", TaskState.FAILED), ("skips", TaskState.SKIPPED), ("wants_a_retry", TaskState.UP_FOR_RETRY)],
)
async def test_what_the_process_reports_is_the_outcome(bench: Bench, kind: str, state: TaskState):
    outcome = await bench.run(kind)
    assert outcome.state == state
    assert bench.desk.outcomes == [outcome]


async def test_a_retry_keeps_its_delay_and_reason(bench: Bench):
    outcome = await bench.run("wants_a_retry")
    assert (outcome.retry_delay, outcome.reason) == (7.0, "not today")


async def test_skipped_downstream_tasks_and_the_label_travel_with_the_result(bench: Bench):
    outcome = await bench.run("branches")
    assert outcome.skip == (("left", -1), ("right", 3))
    assert outcome.rendered_map_index == "the third"
    assert bench.desk.requests == []


async def test_a_bad_exit_code_after_a_success_is_only_a_warning(bench: Bench):
    outcome = await bench.run("succeeds_and_exits_with_3")
    assert outcome.state == TaskState.SUCCESS
    assert "After its result the process exited with code 3" in bench.events("stannel.supervisor")


async def test_a_process_that_does_not_wait_for_answers_is_still_heard_out(bench: Bench):
    outcome = await bench.run("sends_everything_and_leaves")
    assert outcome.state == TaskState.SUCCESS
    assert bench.desk.requests == [GetVariable("a")]


@pytest.mark.parametrize("kind", ["asks_badly", "speaks_byte_by_byte", "reports_twice", "asks_in_a_burst"])
async def test_odd_but_legal_speech_is_answered(bench: Bench, kind: str):
    outcome = await bench.run(kind)
    assert outcome.state == TaskState.SUCCESS
    assert bench.desk.outcomes == [outcome]
    assert bench.events("task.stderr") == []


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("exits_without_a_result", "exited without reporting a result"),
        ("exits_with_3", "exited with code 3"),
        ("dies_by_sigkill", "was killed by SIGKILL; often that means the machine ran out of memory"),
        ("dies_by_sigsegv", "was killed by SIGSEGV"),
        ("dies_in_the_header", "exited without reporting a result"),
        ("dies_in_the_payload", "exited without reporting a result"),
    ],
)
@pytest.mark.parametrize("should_retry", [False, True])
async def test_a_death_without_a_result_fails_or_retries_and_says_why(
    bench: Bench, kind: str, words: str, should_retry: bool
):
    outcome = await bench.run(kind, should_retry=should_retry)
    assert outcome.state == (TaskState.UP_FOR_RETRY if should_retry else TaskState.FAILED)
    assert outcome.reason == f"its process {words}"
    assert bench.desk.outcomes == [outcome]
    assert outcome.reason in str(bench.log()[-1]["event"])


@pytest.mark.parametrize(
    "kind",
    [
        "sends_a_zero_length_frame",
        "announces_too_much",
        "sends_no_array",
        "sends_a_short_array",
        "sends_an_id_of_text",
        "sends_c1",
        "sends_trailing_bytes",
        "reports_a_protocol_error",
    ],
)
async def test_a_process_that_breaks_the_protocol_is_killed(bench: Bench, kind: str):
    outcome = await bench.run(kind)
    assert outcome.state == TaskState.FAILED
    assert "protocol" in str(outcome.reason)
    assert bench.desk.outcomes == [outcome]


async def test_a_flood_before_the_greeting_is_read_is_neither_lost_nor_a_deadlock(bench: Bench):
    outcome = await bench.run("floods_before_it_reads")
    assert outcome.state == TaskState.SUCCESS
    assert len(bench.events("task.stderr")) == 1024
    assert bench.events("task.stdout")[1024] == "now I have read"


async def test_garbage_is_logged_as_well_as_it_can_be(bench: Bench):
    await bench.run("prints_garbage")
    assert bench.events("task.stdout") == ["caf\ufffd \ufffd\ufffd"]
    assert bench.events("task") == ['\ufffd{"not json', "[1, 2]", "numeric level"]


async def test_secrets_never_reach_the_log(bench: Bench):
    await bench.run("tells_secrets")
    assert bench.events("task.stdout") == ["password *** or ***"]
    text = bench.log_path(1).read_text()
    assert "swordfish" not in text
    assert "open-sesame" not in text


async def test_a_task_process_has_nothing_but_what_it_needs(bench: Bench):
    await bench.run("finds_out_what_it_is")
    assert bench.events("task.stdout") == [
        "leads True",
        "fds 7",
        "stdin /dev/null",
        "sigterm True",
        "sigchld True",
        "secret None",
    ]


async def test_a_grandchild_on_the_pipes_dies_with_the_attempt(bench: Bench):
    outcome = await bench.run("leaves_a_grandchild_on_the_pipes")
    assert outcome.state == TaskState.SUCCESS


async def test_a_daemon_on_the_pipes_is_not_waited_for(bench: Bench):
    outcome = await bench.run("leaves_a_daemon_on_the_pipes")
    assert outcome.state == TaskState.SUCCESS
    pid = int(str(bench.events("task.stdout")[0]).split()[1])
    os.kill(pid, 9)


async def test_no_process_of_the_group_survives(bench: Bench):
    await bench.run("forks_fifty")
    pids = [int(word) for word in str(bench.events("task.stdout")[0]).split()[1:]]
    assert len(pids) == 50
    # All of them have been killed; a corpse may still be on its way out.
    async with asyncio.timeout(PATIENCE):
        while any(map(_runs, pids)):
            await asyncio.sleep(0.005)


async def test_the_execution_timeout_ends_the_whole_group(bench: Bench):
    outcome = await bench.run("runs_long", execution_timeout=0.1, should_retry=True)
    assert (outcome.state, outcome.reason) == (TaskState.UP_FOR_RETRY, "execution timeout of 0.1s")


async def test_a_process_that_ignores_sigterm_is_killed(bench: Bench):
    outcome = await bench.run("ignores_sigterm", execution_timeout=0.1)
    assert (outcome.state, outcome.reason) == (TaskState.FAILED, "execution timeout of 0.1s")


async def test_the_canceller_decides_the_outcome(bench: Bench):
    supervision, running = bench.start("runs_long", should_retry=True)
    await bench.said("running")
    supervision.cancel("marked failed by ada", TaskState.FAILED)
    outcome = await asyncio.wait_for(running, PATIENCE)
    assert (outcome.state, outcome.reason) == (TaskState.FAILED, "marked failed by ada")
    assert bench.desk.outcomes == [outcome]


async def test_a_process_is_heard_while_it_is_being_stopped(bench: Bench):
    supervision, running = bench.start("reports_when_told_to_stop")
    await bench.said("running")
    supervision.cancel("enough", TaskState.SKIPPED)
    outcome = await asyncio.wait_for(running, PATIENCE)
    assert outcome.state == TaskState.SKIPPED
    assert bench.events("task.stdout")[-1] == "I was told"


async def test_an_attempt_cancelled_before_its_process_exists_ends_too(bench: Bench):
    bench.limits = Limits(term_grace=PATIENCE)
    supervision, running = bench.start("runs_long")
    supervision.cancel("too late")
    outcome = await asyncio.wait_for(running, PATIENCE)
    assert (outcome.state, outcome.reason) == (TaskState.FAILED, "too late")


async def test_a_process_that_hangs_after_its_result_is_ended_and_the_result_stands(bench: Bench):
    outcome = await bench.run("hangs_after_its_result")
    assert outcome.state == TaskState.SUCCESS
    assert bench.desk.outcomes == [outcome]


async def test_closing_the_connection_is_not_the_end_of_the_process(bench: Bench):
    supervision, running = bench.start("closes_comm_and_stays")
    await bench.said("closed")
    assert not running.done()
    supervision.cancel("enough")
    assert (await asyncio.wait_for(running, PATIENCE)).state == TaskState.FAILED


async def test_a_process_that_never_reads_its_replies_blocks_only_itself(bench: Bench):
    supervision, running = bench.start("never_reads_its_replies")
    await bench.said("sent")
    assert (await Bench(bench.launch, bench.folder / "other").run("fails")).state == TaskState.FAILED
    assert len(bench.desk.requests) < 100
    supervision.cancel("enough")
    await asyncio.wait_for(running, PATIENCE)


async def test_a_cancelled_supervision_kills_the_process_and_reports_nothing(bench: Bench):
    _, running = bench.start("runs_long")
    await bench.said("running")
    pid = int(str(bench.events("stannel.supervisor")[0]).rsplit(maxsplit=1)[-1])
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    async with asyncio.timeout(PATIENCE):
        while _runs(pid):
            await asyncio.sleep(0.005)
    assert bench.desk.outcomes == []


async def test_a_result_that_cannot_be_stored_at_once_is_stored_later(bench: Bench):
    bench.desk.failures = [RuntimeError("the store is away")]
    outcome = await bench.run("fails")
    assert bench.desk.outcomes == [outcome]


async def test_an_acknowledgement_does_not_wait_for_a_slow_store(bench: Bench):
    bench.limits = Limits(ack=0.05)
    bench.desk.finishing.clear()
    _, running = bench.start("succeeds_and_exits_with_3")
    async with asyncio.timeout(PATIENCE):
        # Only a process that got its acknowledgement exits, and then its output ends.
        while not bench.log() or _runs(int(str(bench.log()[0]["event"]).rsplit(maxsplit=1)[-1])):
            await asyncio.sleep(0.005)
    assert not running.done()
    bench.desk.finishing.set()
    assert (await asyncio.wait_for(running, PATIENCE)).state == TaskState.SUCCESS


async def test_a_refused_result_is_told_in_the_log(bench: Bench):
    bench.desk.accepts = False
    await bench.run("succeeds")
    assert "The result was not stored: the attempt had been decided elsewhere" in bench.events("stannel.supervisor")


@pytest.mark.parametrize(
    "failure", [Refused(ErrorCode.VARIABLE_NOT_FOUND, {"key": "a"}, in_body=True), RuntimeError("the store is away")]
)
async def test_a_request_that_fails_is_answered_with_an_error(bench: Bench, failure: Exception):
    bench.desk.failures = [failure]
    bench.desk.word.set()
    outcome = await bench.run("waits_for_a_word")
    assert outcome.state == TaskState.SUCCESS


async def test_an_attempt_that_runs_out_of_descriptors_fails_with_a_reason_and_leaks_none(bench: Bench):
    await bench.run("succeeds")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The limit is on numbers, not on how many are open: find the one that leaves two of them free.
    taken = {int(name) for name in os.listdir("/proc/self/fd")}
    third_free = [number for number in range(len(taken) + 3) if number not in taken][2]
    resource.setrlimit(resource.RLIMIT_NOFILE, (third_free, limit[1]))
    try:
        outcome = await bench.run("succeeds")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert "no streams can be made for its process: Too many open files" in str(outcome.reason)
    assert len(os.listdir("/proc/self/fd")) == len(taken)


async def test_an_attempt_leaks_no_descriptors(bench: Bench):
    await bench.run("succeeds")
    open_before = len(os.listdir("/proc/self/fd"))
    for kind in ("succeeds", "dies_by_sigkill", "sends_c1"):
        await bench.run(kind)
        await bench.run(kind)
    servers = len(bench.launch.file_servers)
    assert len(os.listdir("/proc/self/fd")) <= open_before + servers


async def test_an_attempt_that_cannot_start_fails_with_the_traceback_in_its_log(bench: Bench):
    (bench.folder / "broken.py").write_text("import sys\nraise ValueError('no such table')\n")
    outcome = await bench.run("broken", should_retry=True)
    assert outcome.state == TaskState.UP_FOR_RETRY
    assert str(outcome.reason).endswith("could not be imported: ValueError: no such table")
    assert "raise ValueError" in str(bench.log()[0]["error_detail"]) or "line 2" in str(bench.log()[0]["error_detail"])


def _runs(pid: int) -> bool:
    """Whether the process exists and is more than a corpse waiting for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
