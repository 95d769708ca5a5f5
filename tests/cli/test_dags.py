"""DAGs from the command line."""

from datetime import UTC, datetime

import msgspec
from support.sample_dags import PLAIN

from stannel.model.schedule import DueRun, Interval
from stannel.model.states import RunState
from stannel.store.dags import ParsedFile, hold_at_limit, set_next_run

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def test_every_dag_is_listed_with_its_schedule(stannel, store):
    rows = stannel.json("dags", "list")
    assert [(row["dag_id"], row["schedule"], row["status"], row["fileloc"]) for row in rows] == [
        ("orders", "0 6 * * *", "ok", "orders.py"),
        ("plain", "none", "ok", "plain.py"),
    ]


def test_dags_are_chosen_by_tag_and_by_pause(stannel, store):
    stannel("dags", "pause", "plain")
    assert [row["dag_id"] for row in stannel.json("dags", "list", "--tag", "sales")] == ["orders"]
    assert [row["dag_id"] for row in stannel.json("dags", "list", "--paused")] == ["plain"]
    assert [row["dag_id"] for row in stannel.json("dags", "list", "--unpaused")] == ["orders"]


def test_an_empty_list_says_where_dag_files_go(stannel, home):
    assert f"Put a file into {home}/dags" in stannel("dags", "list").stderr
    assert stannel.json("dags", "list") == []


def test_a_dag_whose_file_is_gone_is_listed_on_request(stannel, store):
    store.dags.remove_file("plain.py")
    assert [row["dag_id"] for row in stannel.json("dags", "list")] == ["orders"]
    gone = stannel.json("dags", "list", "--all")[1]
    assert gone["status"] == "gone: its file no longer has it"
    assert "cannot be run" in stannel("dags", "trigger", "plain", code=1).stderr


def test_a_dag_is_shown_with_its_tasks_in_order(stannel, store):
    out = stannel("dags", "show", "orders").stdout
    assert out.index("extract") < out.index("transform") < out.index("load")
    assert stannel.json("dags", "show", "orders")["spec"]["tasks"][2]["upstream"] == ["transform"]


def test_pausing_several_dags_is_all_or_nothing(stannel, store):
    stannel("dags", "pause", "orders", "plian", code=1)
    assert not store.dags.get("orders").is_paused
    assert "The DAG 'orders' is paused." in stannel("dags", "pause", "orders", "plain").stderr
    assert store.dags.get("plain").is_paused
    assert "is no longer paused" in stannel("dags", "unpause", "orders").stderr
    assert "was no longer paused" in stannel("dags", "unpause", "orders").stderr


def test_a_triggered_run_waits_in_the_store(stannel, store):
    row = stannel.json("dags", "trigger", "plain", "--conf", '{"a": 1}', "--note", "by hand")
    run = store.runs.get("plain", row["run_id"])
    assert run.run_id.startswith("manual__20")
    assert (run.state, run.conf, run.note, run.triggered_by) == (RunState.QUEUED, {"a": 1}, "by hand", "cli")


def test_a_triggered_run_is_about_the_interval_before_its_date(stannel, store):
    row = stannel.json(
        "dags", "trigger", "orders", "--logical-date", "2026-11-10T12:00", "--run-id", "mine", "--conf", '{"limit": 1}'
    )
    assert row["run_id"] == "mine"
    assert row["logical_date"] == "2026-11-10T12:00:00Z"
    assert (row["data_interval_start"], row["data_interval_end"]) == ("2026-11-09T06:00:00Z", "2026-11-10T06:00:00Z")


def test_a_run_that_exists_is_not_made_twice(stannel, store):
    stannel("dags", "trigger", "plain", "--run-id", "one")
    assert "already has a run 'one'" in stannel("dags", "trigger", "plain", "--run-id", "one", code=1).stderr
    assert len(store.runs.latest()) == 1


def test_a_conf_that_breaks_the_params_makes_no_run(stannel, store):
    missing = stannel("dags", "trigger", "orders", code=1).stderr
    assert "the param 'limit' of 'orders' has no default and was not given" in missing
    wrong = stannel("dags", "trigger", "orders", "--conf", '{"limit": "many"}', code=1).stderr
    assert "'many' is not of type integer" in wrong
    misspelt = stannel("dags", "trigger", "orders", "--conf", '{"limt": 5}', code=1).stderr
    assert "did you mean limt?" in misspelt
    assert store.runs.latest() == []


def test_triggering_a_paused_dag_says_that_the_run_will_not_start(stannel, store):
    stannel("dags", "pause", "plain")
    assert "will not start until: stannel dags unpause plain" in stannel("dags", "trigger", "plain").stderr


def test_waiting_without_a_scheduler_says_what_is_missing(stannel, store):
    result = stannel("dags", "trigger", "plain", "--wait", "--timeout", "2", code=1)
    assert "waiting: no scheduler is at work" in result.stderr
    assert "is still queued" in result.stderr


def test_the_state_of_a_run_is_one_word_and_a_failed_one_is_exit_code_1(stannel, store, make_run):
    run = make_run()
    assert stannel("dags", "state", "orders").stdout == "queued\n"
    store.runs.set_state(run, RunState.FAILED, now=NOW)
    assert stannel("dags", "state", "orders", "first", code=1).stdout == "failed\n"


def test_the_next_runs_follow_the_schedule(stannel, store):
    rows = stannel.json("dags", "next-execution", "orders", "--count", "3")
    hours = [datetime.fromisoformat(row["run_after"]) for row in rows]
    assert [hour.hour for hour in hours] == [6, 6, 6]
    assert (hours[2] - hours[0]).days == 2
    assert "does not run by itself" in stannel("dags", "next-execution", "plain", code=1).stderr


def test_an_import_error_is_shown_and_gives_exit_code_1(stannel, store):
    assert stannel.json("dags", "list-import-errors") == []
    broken = ParsedFile(path="plain.py", fingerprint="2", error="Traceback ...\nNameError: name 'x' is not defined")
    store.dags.save_file(broken, now=NOW)
    assert "NameError: name 'x'" in stannel("dags", "list-import-errors", code=1).stdout
    assert stannel.json("dags", "list")[1]["status"] == "broken: its file cannot be imported"
    assert "1 DAG files cannot be imported" in stannel("dags", "list").stderr


def test_the_report_names_the_slowest_file_first(stannel, store):
    slow = msgspec.structs.replace(PLAIN, dag_id="slow")
    store.dags.save_file(ParsedFile(path="slow.py", fingerprint="1", dags=(slow,), seconds=9.0), now=NOW)
    rows = stannel.json("dags", "report")
    assert rows[0]["file"] == "slow.py"
    assert rows[0]["dags"] == ["slow"]


def test_a_dag_held_back_by_its_own_runs_says_so(stannel, store):
    due = DueRun(NOW, Interval(NOW, NOW), NOW)
    with store.transaction() as tx:
        set_next_run(tx, "orders", due)
        hold_at_limit(tx, "orders")
    status = stannel.json("dags", "list")[0]["status"]
    assert status == "late since 2026-11-15 12:00:00Z: max_active_runs is reached"
