"""A sensor that asks a Python function."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from stannel.sdk.operators.python import determine_kwargs
from stannel.sdk.sensors.base import BaseSensorOperator, PokeReturnValue


class PythonSensor(BaseSensorOperator):
    """Waits until `python_callable` returns something true, or a `PokeReturnValue` that is done."""

    template_fields: Sequence[str] = ("templates_dict", "op_args", "op_kwargs")

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        templates_dict: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not callable(python_callable):
            raise self.invalid(f"python_callable must be a function, not {python_callable!r}")
        self.python_callable = python_callable
        self.op_args: Collection[Any] = op_args or ()
        self.op_kwargs: Mapping[str, Any] = op_kwargs or {}
        self.templates_dict = templates_dict

    def poke(self, context: Any) -> bool | PokeReturnValue:
        if self.templates_dict is not None:
            context["templates_dict"] = self.templates_dict
        kwargs = determine_kwargs(self.python_callable, self.op_args, self.op_kwargs, context)
        # An async function gives a coroutine here; it is awaited before it is judged.
        answer: bool | PokeReturnValue = self.python_callable(*self.op_args, **kwargs)
        return answer
