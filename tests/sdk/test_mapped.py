"""Mapped tasks, from what the author wrote to what an instance gets."""

from typing import Any

import pytest
from support.memory_channel import MemoryChannel, run

from stannel.sdk import DAG, task
from stannel.sdk.operators import (
    BashOperator,
)


@pytest.fixture
def channel() -> MemoryChannel:
    return MemoryChannel()


def test_a_mapped_instance_gets_its_item_of_a_literal(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task
        def double(x: int, factor: int) -> int:
            return x * factor

        double.partial(factor=10).expand(x=[1, 2, 3])
    for index in range(3):
        run(dag, "double", channel, map_index=index)
    assert [channel.returned("double", index) for index in range(3)] == [10, 20, 30]


def test_the_last_mapped_argument_changes_fastest(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task
        def pair(x: int, y: Any) -> Any:
            return [x, y]

        pair.expand(x=[1, 2], y={"a": 7, "b": 8})
    for index in range(4):
        run(dag, "pair", channel, map_index=index)
    pairs = [channel.returned("pair", index) for index in range(4)]
    assert [(x, y["__data__"]) for x, y in pairs] == [(1, ["a", 7]), (1, ["b", 8]), (2, ["a", 7]), (2, ["b", 8])]


def test_a_task_is_mapped_over_what_its_upstream_left(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task
        def make() -> list[int]:
            return [5, 6]

        @task
        def add(x: int) -> int:
            return x + 1

        @task
        def total(values: Any) -> Any:
            return [sum(values), len(values), values[0], values[-1], list(values[0:1])]

        total(add.expand(x=make()))
    run(dag, "make", channel)
    run(dag, "add", channel, map_index=0)
    run(dag, "add", channel, map_index=1)
    run(dag, "total", channel)
    assert channel.returned("total") == [13, 2, 6, 7, [6]]


def test_a_task_is_mapped_over_a_mapped_task(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task
        def add(x: int) -> int:
            return x + 1

        add.override(task_id="second").expand(x=add.override(task_id="first").expand(x=[1, 2]))
    for index in range(2):
        run(dag, "first", channel, map_index=index)
    run(dag, "second", channel, map_index=1)
    assert channel.returned("second", 1) == 4


def test_expand_kwargs_gives_each_instance_a_dict(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task
        def add(x: int, y: int, z: int = 0) -> int:
            return x + y + z

        add.partial(z=100).expand_kwargs([{"x": 1, "y": 2}, {"x": 3, "y": 4}])
        BashOperator.partial(task_id="b").expand_kwargs([{"bash_command": "echo {{ ds }}", "env": {"A": "1"}}])
    run(dag, "add", channel, map_index=1)
    run(dag, "b", channel, map_index=0)
    assert channel.returned("add", 1) == 107
    assert channel.returned("b", 0) == "2026-11-15"


def test_map_and_zip_are_applied_where_they_are_used(channel: MemoryChannel) -> None:
    channel.xcoms["make", "return_value", -1] = [1, 2]
    with DAG("d") as dag:

        @task
        def make() -> list[int]:
            return []

        @task
        def use(x: Any) -> Any:
            return x

        use.expand(x=make().map(lambda value: value * 10))
        use.override(task_id="zipped")(make().zip(make(), fillvalue=0))
        use.override(task_id="joined")(make().concat(make()))
    channel.xcoms["make__1", "return_value", -1] = [3]
    channel.xcoms["make__2", "return_value", -1] = [4, 5]
    channel.xcoms["make__3", "return_value", -1] = [6]
    channel.xcoms["make__4", "return_value", -1] = [7]
    run(dag, "use", channel, map_index=1)
    run(dag, "zipped", channel)
    run(dag, "joined", channel)
    assert channel.returned("use", 1) == 20
    assert [pair["__data__"] for pair in channel.returned("zipped")] == [[3, 4], [0, 5]]
    assert channel.returned("joined") == [6, 7]


def test_an_instance_beyond_the_list_fails_with_a_reason(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    with DAG("d") as dag:

        @task
        def one(x: int) -> int:
            return x

        one.expand(x=[1, 2])
    assert run(dag, "one", channel, map_index=2).state == "failed"
    assert "shorter" in caplog.text


def test_a_mapped_instance_may_have_a_name(channel: MemoryChannel) -> None:
    with DAG("d") as dag:

        @task(map_index_template="{{ task.op_kwargs['x'] }}!")
        def one(x: str) -> str:
            return x

        one.expand(x=["a", "b"])
    assert run(dag, "one", channel, map_index=1).rendered_map_index == "b!"


def test_a_classic_operator_can_be_mapped(channel: MemoryChannel) -> None:
    with DAG("d", default_args={"retries": 4}) as dag:
        BashOperator.partial(task_id="b", env={"GREETING": "hi"}).expand(bash_command=["echo $GREETING", "echo two"])
    assert dag.get_task("b").retries == 4
    run(dag, "b", channel, map_index=0)
    assert channel.returned("b", 0) == "hi"
