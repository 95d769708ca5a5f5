"""Values that exist only while a run runs (another task's XCom, a run parameter) and how arguments hold them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any, Self

from stannel.sdk.exceptions import XComNotFound
from stannel.sdk.node import Node
from stannel.sdk.notset import NOTSET

XCOM_RETURN_KEY = "return_value"


class Reference:
    """A promise of a value, kept by `resolve` in the running task."""

    def iter_operators(self) -> Iterator[Any]:
        """The tasks that must end before the value exists."""
        return iter(())

    def resolve(self, context: Mapping[str, Any]) -> Any:
        raise NotImplementedError


def references_in(value: Any) -> Iterator[Reference]:
    """Every reference inside an argument, however deep in lists and dicts."""
    if isinstance(value, Reference):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from references_in(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from references_in(item)


def resolved(value: Any, context: Mapping[str, Any]) -> Any:
    """The argument with every reference replaced by its value; the same object if it holds none."""
    if isinstance(value, Reference):
        return value.resolve(context)
    if isinstance(value, dict | list | tuple | set | frozenset) and next(references_in(value), None) is not None:
        return _rebuilt(value, context)
    return value


def _rebuilt(value: Any, context: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: resolved(item, context) for key, item in value.items()}
    items = [resolved(item, context) for item in value]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*items)
    for kind in (list, tuple, set):
        if isinstance(value, kind):
            return kind(items)
    return frozenset(items)


class DagParam(Reference):
    """A run parameter used as an argument: what the run was given, else the default."""

    def __init__(self, current_dag: Any, name: str, default: Any = NOTSET) -> None:
        self.name, self.default = name, default
        if default is not NOTSET:
            current_dag.params.setdefault(name, default)

    def resolve(self, context: Mapping[str, Any]) -> Any:
        params = context["params"]
        if self.name in params:
            return params[self.name]
        if self.default is NOTSET:
            raise KeyError(f"the run has no parameter {self.name!r}")
        return self.default


class XComArg(Reference, Node):
    """What a task will leave under `key`: an argument of later tasks, and a stand-in for the task in arrows."""

    def __init__(self, operator: Any, key: str = XCOM_RETURN_KEY) -> None:
        self.operator, self.key = operator, key

    @property
    def roots(self) -> Sequence[Any]:
        return list(self.iter_operators())

    leaves = roots

    def iter_operators(self) -> Iterator[Any]:
        yield self.operator

    def __getitem__(self, key: str) -> "XComArg":
        if not isinstance(key, str):
            raise TypeError(f"an output is indexed by the name of an XCom, not by {key!r}; index it inside the task")
        return XComArg(self.operator, key)

    def __iter__(self) -> Iterator[Any]:
        # Without this, Python would iterate through __getitem__ with 0, 1, 2 ... and report a confusing error.
        raise TypeError(f"the output of {self.operator!r} is not known before the run; use .expand() to map over it")

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        task_id, dag_id = self.operator.task_id, self.operator.dag_id
        return f"{{{{ task_instance.xcom_pull(task_ids='{task_id}', dag_id='{dag_id}', key='{self.key}') }}}}"

    def __repr__(self) -> str:
        return f"XComArg({self.operator!r}, {self.key!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, XComArg) and (self.operator, self.key) == (other.operator, other.key)

    def __hash__(self) -> int:
        return hash((id(self.operator), self.key))

    def resolve(self, context: Mapping[str, Any]) -> Any:
        ti, task_id = context["ti"], self.operator.task_id
        if self.operator.is_mapped:
            return ti.xcom_sequence(task_id, self.key)
        value = ti.xcom_pull(task_ids=task_id, key=self.key, map_indexes=-1)
        if value is None and self.key != XCOM_RETURN_KEY:
            raise XComNotFound(ti.dag_id, task_id, self.key)
        return value

    def map(self, function: Callable[[Any], Any]) -> "MappedXComArg":
        """The same list with `function` applied to each item, in the task that uses it."""
        return MappedXComArg(self, function)

    def zip(self, *others: "XComArg", fillvalue: Any = NOTSET) -> "ZippedXComArg":
        """Tuples of the items at the same place; as long as the shortest, or the longest if there is a `fillvalue`."""
        return ZippedXComArg([self, *others], fillvalue)

    def concat(self, *others: "XComArg") -> "JoinedXComArg":
        """One list after the other."""
        return JoinedXComArg([self, *others])

    def as_setup(self) -> "XComArg":
        """Mark the task as a setup."""
        for operator in self.iter_operators():
            operator.as_setup()
        return self

    def as_teardown(self, *, setups: Any = None, on_failure_fail_dagrun: bool | None = None) -> "XComArg":
        """Mark the task as the teardown of `setups`."""
        for operator in self.iter_operators():
            operator.as_teardown(setups=setups, on_failure_fail_dagrun=on_failure_fail_dagrun)
        return self

    def __enter__(self) -> Self:
        self.operator.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.operator.__exit__(*error)


class _DerivedXComArg(XComArg):
    """A list made from other outputs in the task that uses it."""

    def __init__(self, sources: Sequence[XComArg]) -> None:
        super().__init__(sources[0].operator, sources[0].key)
        self.sources = list(sources)

    def iter_operators(self) -> Iterator[Any]:
        for source in self.sources:
            yield from source.iter_operators()

    def __getitem__(self, key: str) -> XComArg:
        raise TypeError("the result of .map(), .zip() and .concat() cannot be indexed before the run")

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


class MappedXComArg(_DerivedXComArg):
    """See `XComArg.map`."""

    def __init__(self, source: XComArg, function: Callable[[Any], Any]) -> None:
        super().__init__([source])
        self.function = function

    def resolve(self, context: Mapping[str, Any]) -> Any:
        return [self.function(item) for item in items_of(self.sources[0].resolve(context))]


class ZippedXComArg(_DerivedXComArg):
    """See `XComArg.zip`."""

    def __init__(self, sources: Sequence[XComArg], fillvalue: Any) -> None:
        super().__init__(sources)
        self.fillvalue = fillvalue

    def resolve(self, context: Mapping[str, Any]) -> Any:
        columns = [items_of(source.resolve(context)) for source in self.sources]
        if self.fillvalue is NOTSET:
            return list(zip(*columns, strict=False))
        return list(zip_longest(*columns, fillvalue=self.fillvalue))


class JoinedXComArg(_DerivedXComArg):
    """See `XComArg.concat`."""

    def resolve(self, context: Mapping[str, Any]) -> Any:
        return list(chain.from_iterable(items_of(source.resolve(context)) for source in self.sources))


def items_of(value: Any) -> Sequence[Any]:
    """What mapping goes over: the items of a list, or the pairs of a dict."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value
    raise TypeError(f"a task can be mapped over a list or a dict, but its upstream left {type(value).__name__}")
