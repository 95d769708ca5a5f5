"""What a running task may know: a mapping whose values are computed when they are read."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from types import CodeType
from typing import Any

# Reading one of these asks the engine, so they are handed to `**kwargs` only if the function mentions them.
ASKED_KEYS = frozenset(
    {
        "prev_data_interval_start_success",
        "prev_data_interval_end_success",
        "prev_start_date_success",
        "prev_end_date_success",
    }
)
CONTEXT_KEYS = ASKED_KEYS | {
    "asset_state_store",
    "conf",
    "conn",
    "dag",
    "dag_run",
    "data_interval_end",
    "data_interval_start",
    "ds",
    "ds_nodash",
    "expanded_ti_count",
    "inlet_events",
    "inlets",
    "logical_date",
    "macros",
    "map_index_template",
    "outlet_events",
    "outlets",
    "params",
    "partition_date",
    "partition_key",
    "reason",
    "exception",
    "run_id",
    "task",
    "task_instance",
    "task_instance_key_str",
    "task_state_store",
    "task_store",
    "templates_dict",
    "test_mode",
    "ti",
    "triggering_asset_events",
    "ts",
    "ts_nodash",
    "ts_nodash_with_tz",
    "var",
}


class Context(MutableMapping[str, Any]):
    """The variables of templates, callables and callbacks. `makers` compute a value from the context on first use."""

    def __init__(self, makers: Mapping[str, Callable[["Context"], Any]], **values: Any) -> None:
        self._makers, self._values = makers, values

    def __getitem__(self, key: str) -> Any:
        values = self._values
        if key in values:
            return values[key]
        value = values[key] = self._makers[key](self)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self._values[key] = value

    def __delitem__(self, key: str) -> None:
        del self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values or key in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._values.keys() | self._makers.keys())

    def __len__(self) -> int:
        return len(self._values.keys() | self._makers.keys())

    def for_call(self, function: Callable[..., Any]) -> dict[str, Any]:
        """The whole context for a function with `**kwargs`; what must be asked for only if its code names it."""
        code = getattr(function, "__code__", None)
        named = _texts(code) if isinstance(code, CodeType) else frozenset()
        return {key: self[key] for key in self if key not in ASKED_KEYS or key in named}

    def copy(self) -> "Context":
        return Context(self._makers, **self._values)

    def __repr__(self) -> str:
        return f"Context({', '.join(sorted(self))})"


def _texts(code: CodeType) -> frozenset[str]:
    return frozenset(one for one in (*code.co_consts, *code.co_varnames) if isinstance(one, str))


def context_merge(context: MutableMapping[str, Any], *others: Mapping[str, Any], **kwargs: Any) -> None:
    """Put further values into a context."""
    for other in (*others, kwargs):
        for key, value in other.items():
            context[key] = value


_current: list[Context] = []


def get_current_context() -> Context:
    """The context of the task that is running; an error outside of one."""
    if not _current:
        raise RuntimeError("no task is running here; get_current_context() works inside task code only")
    return _current[-1]


class use_context:  # noqa: N801 - read as a verb, in a `with` statement
    """Let `get_current_context()` give this context while the block runs."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        _current.append(self._context)

    def __exit__(self, *error: object) -> None:
        _current.pop()
