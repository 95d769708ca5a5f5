"""The example DAGs load, compile, and run to their end."""

from pathlib import Path

import pytest
from support.memory_channel import MemoryChannel, run

from stannel.protocol.requests import SkipDownstreamTasks
from stannel.sdk import DAG
from stannel.sdk.compile import compile_dag
from stannel.sdk.load import load_dags

FOLDER = Path(__file__).parents[2] / "examples" / "dags"


def load(name: str) -> DAG:
    return load_dags(FOLDER / f"{name}.py", FOLDER).dags[name]


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_an_example_compiles(file: Path) -> None:
    for dag in load_dags(file, FOLDER).dags.values():
        assert compile_dag(dag, fileloc=file.name).tasks


def test_hello_says_hello(capsys: pytest.CaptureFixture[str]) -> None:
    dag, channel = load("hello"), MemoryChannel()
    for task_id in ("pick_name", "greet", "say"):
        assert run(dag, task_id, channel, conf={"name": "Ada"}).state == "success"
    assert capsys.readouterr().out == "2026-11-15: Hello, Ada!\n"


@pytest.mark.parametrize(("orders", "skipped"), [(11, "ship_each"), (3, "ship_in_batches")])
def test_branching_takes_one_way(orders: int, skipped: str) -> None:
    channel = MemoryChannel()
    run(load("branching"), "busy_day", channel, conf={"orders": orders})
    assert [body.tasks for body in channel.sent(SkipDownstreamTasks)] == [[skipped]]


def test_mapping_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    dag, channel = load("mapping"), MemoryChannel()
    run(dag, "list_files", channel)
    labels = [run(dag, "count_lines", channel, map_index=index).rendered_map_index for index in range(4)]
    for task_id in ("summary.total", "summary.largest", "show"):
        run(dag, task_id, channel)
    assert labels == ["part-0.csv", "part-1.csv", "part-2.csv", "part-3.csv"]
    assert capsys.readouterr().out == "400 lines in all, at most 100 in one file\n"


def test_shell_writes_retries_and_cleans_up() -> None:
    dag, channel = load("shell"), MemoryChannel()
    run(dag, "prepare", channel)
    folder = Path(channel.returned("prepare"))
    run(dag, "write", channel)
    assert (folder / "data.txt").read_text() == "data of 2026-11-15\n"
    states = [run(dag, "works_at_second_try", channel, try_number=n, should_retry=True).state for n in (1, 2)]
    assert states == ["up_for_retry", "success"]
    run(dag, "clean_up", channel)
    assert not folder.exists()
