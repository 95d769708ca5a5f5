"""What can stand on either side of `>>`: tasks, task groups, XCom references and labels."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from stannel.errors import DagInvalid


class Node:
    """Something with a first and a last task. Subclasses say which; the arrows are the same for all."""

    @property
    def roots(self) -> Sequence[Any]:
        """The tasks that start first."""
        raise NotImplementedError

    @property
    def leaves(self) -> Sequence[Any]:
        """The tasks that end last."""
        raise NotImplementedError

    def set_upstream(self, other: "Edge", edge_modifier: "Label | None" = None) -> None:
        """Wait for `other` before this starts."""
        for node in flat(other):
            _connect(node, self, edge_modifier)

    def set_downstream(self, other: "Edge", edge_modifier: "Label | None" = None) -> None:
        """Let `other` wait for this."""
        for node in flat(other):
            _connect(self, node, edge_modifier)

    def __rshift__(self, other: "Edge") -> "Edge":
        self.set_downstream(other)
        return other

    def __lshift__(self, other: "Edge") -> "Edge":
        self.set_upstream(other)
        return other

    # A list on the left of an arrow: Python asks the right side.
    def __rrshift__(self, other: "Edge") -> "Node":
        self.set_upstream(other)
        return self

    def __rlshift__(self, other: "Edge") -> "Node":
        self.set_downstream(other)
        return self


Edge: TypeAlias = "Node | Sequence[Edge]"


class Label(Node):
    """A word written on an arrow: `a >> Label("when late") >> b`."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._before: list[Node] = []
        self._after: list[Node] = []

    def join(self, before: Node | None = None, after: Node | None = None) -> None:
        """Note one side of the arrow; it is drawn once both sides are known."""
        if before is not None:
            self._before.append(before)
        if after is not None:
            self._after.append(after)
        for upstream in self._before:
            for downstream in self._after:
                _connect(upstream, downstream, self)


def flat(other: Any) -> Iterator[Node]:
    """The nodes of a possibly nested list, in order."""
    if isinstance(other, Node):
        yield other
    elif isinstance(other, Iterable) and not isinstance(other, str | bytes):
        for item in other:
            yield from flat(item)
    else:
        raise TypeError(f"only tasks, task groups and lists of them can be connected by arrows, not {other!r}")


def _connect(before: Node, after: Node, label: Label | None = None) -> None:
    if isinstance(after, Label):
        after.join(before=before)
    elif isinstance(before, Label):
        before.join(after=after)
    else:
        for upstream in before.leaves:
            for downstream in after.roots:
                upstream.add_edge_to(downstream, label.label if label else None)


def chain(*steps: Edge) -> None:
    """Connect each step to the next; two lists of the same length side by side are connected pairwise."""
    for left, right in pairwise(steps):
        if isinstance(left, Node) or isinstance(right, Node):
            for node in flat(left):
                node.set_downstream(right)
            continue
        first, second = list(flat(left)), list(flat(right))
        if len(first) != len(second):
            raise DagInvalid(
                _dag_id(first), None, f"chain() cannot pair lists of different length ({len(first)} and {len(second)})"
            )
        for one, other in zip(first, second, strict=True):
            one.set_downstream(other)


def chain_linear(*steps: Edge) -> None:
    """Connect each step to the next; every task of a list is connected to every task of the next."""
    if len(steps) < 2:
        raise ValueError("chain_linear() needs at least two steps")
    for left, right in pairwise(steps):
        cross_downstream(left, right)


def cross_downstream(from_tasks: Edge, to_tasks: Edge) -> None:
    """Let every one of `to_tasks` wait for every one of `from_tasks`."""
    for node in flat(from_tasks):
        node.set_downstream(to_tasks)


def _dag_id(nodes: Iterable[Node]) -> str:
    tasks = (task for node in nodes if not isinstance(node, Label) for task in node.leaves)
    return next((task.dag.dag_id for task in tasks if task.has_dag()), "?")
