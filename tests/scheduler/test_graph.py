from hypothesis import given
from hypothesis import strategies as st

from stannel.model.dag import DagSpec, TaskSpec
from stannel.scheduler.graph import Graph


def graph_of(**upstream: str) -> Graph:
    """`graph_of(a="", b="a")`: each task with its upstream tasks."""
    return Graph(
        DagSpec(
            dag_id="d", tasks=tuple(TaskSpec(task_id=one, upstream=tuple(up.split())) for one, up in upstream.items())
        )
    )


def test_tasks_stand_after_their_upstream_tasks_otherwise_as_the_author_wrote_them() -> None:
    assert graph_of(c="b", z="", b="a", a="").order == ("z", "a", "b", "c")


def test_downstream_is_the_reverse_of_upstream() -> None:
    graph = graph_of(a="", b="a", c="a b ghost")
    assert graph.downstream == {"a": ("b", "c"), "b": ("c",), "c": ()}


def test_a_circle_does_not_hide_its_tasks() -> None:
    assert set(graph_of(a="b", b="a", c="").order) == {"a", "b", "c"}


def test_leaves_are_the_last_working_tasks_and_the_teardowns_that_asked_to_decide() -> None:
    def spec(**options: bool) -> DagSpec:
        return DagSpec(
            dag_id="d",
            tasks=(
                TaskSpec(task_id="setup", is_setup=True),
                TaskSpec(task_id="work", upstream=("setup",)),
                TaskSpec(task_id="tear", upstream=("setup", "work"), is_teardown=True, **options),
            ),
        )

    assert Graph(spec()).leaves == {"work"}
    assert Graph(spec(on_failure_fail_dagrun=True)).leaves == {"work", "tear"}


@given(st.lists(st.lists(st.integers(0, 30)), max_size=15), st.randoms(use_true_random=False))
def test_the_order_respects_every_dependency(shape: list[list[int]], random: object) -> None:
    upstream = {
        f"t{number}": " ".join({f"t{one % number}" for one in ups}) if number else ""
        for number, ups in enumerate(shape)
    }
    names = list(upstream)
    random.shuffle(names)  # type: ignore[attr-defined]
    graph = graph_of(**{name: upstream[name] for name in names})
    place = {task_id: number for number, task_id in enumerate(graph.order)}
    assert len(place) == len(shape)
    assert all(place[one] < place[task_id] for task_id, ups in graph.upstream.items() for one in ups)
