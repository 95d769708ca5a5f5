"""The value that means "the author gave nothing", where None is a value of its own."""

from typing import Any, Final, TypeGuard, TypeVar, final

T = TypeVar("T")


@final
class ArgNotSet:
    """The type of `NOTSET`; there is exactly one instance, also after pickling and copying."""

    _instance: "ArgNotSet | None" = None

    def __new__(cls) -> "ArgNotSet":
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "NOTSET"

    def __reduce__(self) -> tuple[Any, ...]:
        return ArgNotSet, ()


NOTSET: Final = ArgNotSet()
# Known to authors as the marker of a field that only has a value while the task runs.
SET_DURING_EXECUTION: Final = NOTSET


def is_arg_set(value: T | ArgNotSet) -> TypeGuard[T]:
    """True unless the author gave nothing."""
    return not isinstance(value, ArgNotSet)
