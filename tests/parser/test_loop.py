"""A parser at work: the store follows the DAG folder, whatever happens in it."""

import os
import shutil
import signal
import sqlite3
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stannel.errors import ImportFailed
from stannel.parser import rounds
from stannel.parser.loop import Parser, parse_once
from stannel.store.dags import ParsedFile


def all_children() -> set[int]:
    found = Path("/proc/self/task").glob("*/children")
    return {int(pid) for file in found for pid in file.read_text().split()}


# Servers that other tests of this process share are not the parser's.
_others: set[int] = set()


@pytest.fixture(autouse=True)
def without_others():
    _others.clear()
    _others.update(all_children())


def children() -> set[int]:
    return all_children() - _others


@pytest.fixture
def orders_file(place):
    return place.write_dag("orders.py", "orders")


@pytest.mark.usefixtures("orders_file", "running_parser")
def test_what_was_there_before_is_live_when_the_parser_is_ready(place):
    assert place.dag_ids() == ["orders"]


def test_a_new_file_is_live_by_itself(place, running_parser):
    place.write_dag("sub/orders.py", "orders", "@daily")
    place.wait_until(lambda: place.dag_ids() == ["orders"])
    status = place.store.dags.get("orders")
    assert status.fileloc == "sub/orders.py"
    assert place.store.dags.spec(status.version).fileloc == "sub/orders.py"


def test_an_edit_makes_a_new_version(place, running_parser):
    path = place.write_dag("orders.py", "orders")
    place.wait_until(lambda: place.dag_ids() == ["orders"])
    first = place.store.dags.get("orders").version
    path.write_text(path.read_text().replace('"b"', '"c"'))
    place.wait_until(lambda: place.store.dags.get("orders").version != first)
    spec = place.store.dags.spec(place.store.dags.get("orders").version)
    assert [task.task_id for task in spec.tasks] == ["a", "c"]


def test_edits_of_equal_length_in_quick_succession_all_arrive(place, running_parser):
    path = place.write_dag("orders.py", "orders_0")
    for number in range(1, 6):
        place.wait_until(lambda wanted=f"orders_{number - 1}": place.dag_ids() == [wanted])
        path.write_text(path.read_text().replace(f"orders_{number - 1}", f"orders_{number}"))
    place.wait_until(lambda: place.dag_ids() == ["orders_5"])


def test_edits_of_equal_length_in_a_module_all_arrive(place, running_parser):
    place.write("orders.py", "from names import NAME\nfrom stannel.sdk import DAG\ndag = DAG(NAME)")
    for number in range(4):
        place.write("names.py", f'NAME = "orders_{number}"')
        place.wait_until(lambda wanted=f"orders_{number}": place.dag_ids() == [wanted])


def test_a_deleted_file_takes_its_dags_out_of_the_schedule_and_leaves_their_history(place, running_parser):
    path = place.write_dag("orders.py", "orders")
    place.wait_until(lambda: place.dag_ids() == ["orders"])
    path.unlink()
    place.wait_until(lambda: place.dag_ids() == [])
    assert place.files() == {}
    assert place.store.dags.spec(place.store.dags.get("orders").version).dag_id == "orders"


def test_a_renamed_file_keeps_its_dags(place, running_parser):
    path = place.write_dag("orders.py", "orders")
    place.wait_until(lambda: place.dag_ids() == ["orders"])
    path.rename(place.folder / "purchases.py")
    place.wait_until(lambda: place.files().keys() == {"purchases.py"} and place.dag_ids() == ["orders"])
    assert place.files()["purchases.py"].error is None
    assert place.store.dags.get("orders").fileloc == "purchases.py"


def test_a_file_replaced_the_way_editors_do_is_live(place, running_parser):
    path = place.write_dag("orders.py", "orders")
    place.wait_until(lambda: place.dag_ids() == ["orders"])
    text = path.read_text().replace('"orders"', '"purchases"')
    with path.open("w") as half_written:
        half_written.write(text[:40])
        half_written.flush()
        swap = place.folder / ".orders.py.swp"
        swap.write_text(text)
    swap.rename(path)
    place.wait_until(lambda: place.dag_ids() == ["purchases"])
    assert place.files()["orders.py"].error is None


def test_a_folder_that_is_moved_in_and_out_is_followed(place, running_parser, tmp_path):
    outside = tmp_path / "team"
    (outside / "deep").mkdir(parents=True)
    path = place.write_dag("one.py", "one")
    path.rename(outside / "deep" / "one.py")
    outside.rename(place.folder / "team")
    place.wait_until(lambda: place.files().keys() == {"team/deep/one.py"} and place.dag_ids() == ["one"])
    shutil.rmtree(place.folder / "team")
    place.wait_until(lambda: place.dag_ids() == [])


def test_a_change_in_a_module_reaches_the_dags_that_import_it(place, running_parser):
    place.write("names.py", 'NAME = "first"')
    place.write("orders.py", "from names import NAME\nfrom stannel.sdk import DAG\ndag = DAG(NAME)")
    place.write_dag("other.py", "other")
    place.wait_until(lambda: place.dag_ids() == ["first", "other"])
    untouched = place.files()["other.py"].parsed_at
    assert place.files()["orders.py"].dependencies == ["names.py"]
    place.write("names.py", 'NAME = "other_name"')
    place.wait_until(lambda: place.dag_ids() == ["other", "other_name"])
    assert place.files()["other.py"].parsed_at == untouched


def test_a_change_in_a_data_file_reaches_the_dags_that_are_made_from_it(place, running_parser):
    place.write("config/a.json", '{"id": "from_a"}')
    place.write(
        "generated.py",
        """
        import json
        from pathlib import Path
        from stannel.sdk import DAG

        for file in sorted((Path(__file__).parent / "config").glob("*.json")):
            with DAG(json.loads(file.read_text())["id"]):
                pass
        """,
    )
    place.wait_until(lambda: place.dag_ids() == ["from_a"])
    place.write("config/b.json", '{"id": "from_b"}')
    place.wait_until(lambda: place.dag_ids() == ["from_a", "from_b"])
    place.write("config/a.json", '{"id": "from_elsewhere"}')
    place.wait_until(lambda: place.dag_ids() == ["from_b", "from_elsewhere"])


def test_a_module_that_was_missing_cures_the_file_that_misses_it(place, running_parser):
    place.write("orders.py", "from names import NAME\nfrom stannel.sdk import DAG\ndag = DAG(NAME)")
    place.wait_until(lambda: place.files().keys() == {"orders.py"})
    assert "No module named 'names'" in place.error("orders.py")
    place.write("names.py", 'NAME = "orders"')
    place.wait_until(lambda: place.dag_ids() == ["orders"] and place.files()["orders.py"].error is None)


def test_a_mistake_in_a_module_is_cured_where_it_was_made(place, running_parser):
    place.write("names.py", "NAME = 1 / 0")
    place.write("orders.py", "from names import NAME\nfrom stannel.sdk import DAG\ndag = DAG(NAME)")
    place.wait_until(lambda: place.files().keys() == {"orders.py"})
    assert "names.py" in place.error("orders.py")
    assert "ZeroDivisionError" in place.error("orders.py")
    place.write("names.py", 'NAME = "orders"')
    place.wait_until(lambda: place.dag_ids() == ["orders"] and place.files()["orders.py"].error is None)


def test_a_file_that_is_only_touched_is_not_imported_again(place, running_parser):
    path = place.write_dag("orders.py", "orders")
    place.wait_until(lambda: place.dag_ids() == ["orders"])
    before = place.files()["orders.py"].parsed_at
    os.utime(path)
    place.write_dag("other.py", "other")
    place.wait_until(lambda: place.dag_ids() == ["orders", "other"])
    assert place.files()["orders.py"].parsed_at == before


def error_of(place, name):
    """The error shown for a file. A file that is read in the middle of being written may be gone for a moment."""
    file = place.files().get(name)
    return "gone" if file is None else file.error or ""


def test_a_dag_that_moves_between_files_follows(place, running_parser):
    place.write("a.py", "from stannel.sdk import DAG\none = DAG('moving')\ntwo = DAG('staying')")
    place.write_dag("b.py", "other")
    place.wait_until(lambda: place.dag_ids() == ["moving", "other", "staying"])
    place.write("b.py", "from stannel.sdk import DAG\none = DAG('moving')\ntwo = DAG('other')")
    place.wait_until(lambda: error_of(place, "b.py").startswith("The DAG id 'moving'"))
    place.write("a.py", "from stannel.sdk import DAG\ntwo = DAG('staying')")
    place.wait_until(
        lambda: (
            error_of(place, "b.py") == ""
            and place.store.dags.get("moving").fileloc == "b.py"
            and place.dag_ids() == ["moving", "other", "staying"]
        )
    )


def test_a_clash_ends_when_the_other_file_is_deleted(place, running_parser):
    first = place.write_dag("a.py", "same")
    place.wait_until(lambda: place.dag_ids() == ["same"])
    place.write_dag("b.py", "same")
    place.wait_until(lambda: "b.py" in place.files() and "a.py already" in place.error("b.py"))
    first.unlink()
    place.wait_until(lambda: place.files().keys() == {"b.py"} and place.files()["b.py"].error is None)
    assert place.store.dags.get("same").fileloc == "b.py"
    assert place.dag_ids() == ["same"]


def test_the_fork_server_may_die_at_any_time(place, running_parser):
    place.write_dag("one.py", "one")
    place.wait_until(lambda: place.dag_ids() == ["one"])
    [server] = children()
    os.kill(server, signal.SIGKILL)
    place.write_dag("two.py", "two")
    place.wait_until(lambda: place.dag_ids() == ["one", "two"])


@pytest.fixture
def no_patience(monkeypatch):
    monkeypatch.setattr(rounds, "_IDLE_SECONDS", 0.0)


@pytest.mark.usefixtures("no_patience", "running_parser")
def test_the_fork_server_rests_when_nothing_changes_and_comes_back(place):
    for name in ("one", "two"):
        place.wait_until(lambda: children() == set())
        place.write_dag(f"{name}.py", name)
        place.wait_until(lambda wanted=name: wanted in place.dag_ids())


def test_what_could_not_be_stored_is_stored_later(place, running_parser, caplog):
    database = sqlite3.connect(place.settings.home / "stannel.db", isolation_level=None, timeout=20)
    database.execute("ALTER TABLE dag_file RENAME TO aside")
    place.write_dag("one.py", "one")
    try:
        place.wait_until(lambda: "could not be brought up to date and is tried again" in caplog.text)
    finally:
        database.execute("ALTER TABLE aside RENAME TO dag_file")
        database.close()
    place.wait_until(lambda: place.dag_ids() == ["one"])


def test_files_that_went_while_no_parser_ran_are_forgotten(place):
    gone = ParsedFile(path="gone.py", fingerprint="0")
    place.store.dags.save_file(gone, now=datetime.now(UTC))
    assert place.parse() == []
    assert place.files() == {}


def test_a_folder_that_is_replaced_by_another_is_watched(place, running_parser, tmp_path):
    place.write_dag("old.py", "old")
    place.wait_until(lambda: place.dag_ids() == ["old"])
    place.folder.rename(tmp_path / "aside")
    place.wait_until(lambda: place.dag_ids() == [])
    place.write_dag("new.py", "new")
    place.wait_until(lambda: place.dag_ids() == ["new"])
    place.write_dag("newer.py", "newer")
    place.wait_until(lambda: place.dag_ids() == ["new", "newer"])


def test_the_lease_tells_what_was_read(place, running_parser):
    place.write_dag("good.py", "good")
    place.write("bad.py", "import stannel\ndag = 1 / 0")

    def details():
        return [(lease.kind, lease.pid, lease.detail) for lease in place.store.leases.all()]

    place.wait_until(lambda: details() == [("parser", os.getpid(), {"files": 2, "dags": 1, "errors": 1})])


def test_a_parser_that_stops_leaves_no_lease_and_no_process(place):
    before = children()
    parser, stop = Parser(place.store, place.settings), threading.Event()
    place.write("hangs.py", "import stannel.sdk, time\nprint('dag')\ntime.sleep(600)")
    thread = threading.Thread(target=parser.run, args=(stop,))
    thread.start()
    place.wait_until(lambda: bool(place.store.leases.all()))
    stop.set()
    thread.join(20)
    assert not thread.is_alive()
    assert place.store.leases.all() == []
    assert children() == before


def test_one_file_can_be_parsed_alone(place):
    one = place.write_dag("one.py", "one")
    place.write_dag("two.py", "two")
    assert [file.path for file in place.parse(one)] == ["one.py"]
    assert place.dag_ids() == ["one"]
    one.unlink()
    assert place.parse(one) == []
    assert place.dag_ids() == []


def test_a_file_outside_the_dag_folder_is_refused(place, tmp_path):
    with pytest.raises(ImportFailed, match="it is not in the DAG folder"):
        parse_once(place.store, place.settings, [tmp_path / "elsewhere.py"])


def test_many_files_are_all_read(place):
    for number in range(60):
        place.write_dag(f"dags_{number % 7}/file_{number}.py", f"dag_{number}")
    statuses = place.parse()
    assert [status.error for status in statuses] == [None] * 60
    assert len(place.dag_ids()) == 60
    assert children() == set()
