"""Run parameters: a default, a schema, and the value a run was given."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from stannel.sdk.exceptions import ParamValidationError
from stannel.sdk.notset import NOTSET
from stannel.sdk.param_schema import problems


class Param:
    """A parameter with a JSON Schema given as keywords: `Param(5, type="integer", minimum=1)`."""

    def __init__(
        self,
        default: Any = NOTSET,
        description: str | None = None,
        schema: dict[str, Any] | None = None,
        source: str | None = None,
        **kwargs: Any,
    ) -> None:
        # `schema` holds the whole schema and `source` says where a param stems from; both occur in authors' code.
        self.value = default
        self.description = description
        self.source = source
        self.schema: dict[str, Any] = kwargs if schema is None else {**schema, **kwargs}

    @property
    def has_value(self) -> bool:
        return self.value is not NOTSET and self.value is not None

    def resolve(self, value: Any = NOTSET, suppress_exception: bool = False) -> Any:
        """The given value, else the default, once it meets the schema."""
        final = self.value if value is NOTSET else value
        if final is NOTSET:
            if suppress_exception:
                return None
            raise ParamValidationError("no value was given and there is no default")
        # A default of None means "nothing chosen" unless the schema speaks about None itself.
        found = next(problems(final, self.schema), None)
        if found is not None and not suppress_exception:
            raise ParamValidationError(found)
        return None if found is not None else final

    def __repr__(self) -> str:
        return f"Param({self.value!r})"


class ParamsDict(MutableMapping[str, Any]):
    """Params by name; reading an item gives its value."""

    def __init__(self, params: Mapping[str, Any] | None = None, suppress_exception: bool = False) -> None:
        self.suppress_exception = suppress_exception
        self._params: dict[str, Param] = {}
        items = params._params if isinstance(params, ParamsDict) else params or {}
        for name, value in items.items():
            if not isinstance(name, str):
                raise ParamValidationError(f"a parameter's name must be text, not {name!r}")
            self._params[name] = value if isinstance(value, Param) else Param(value)

    def __getitem__(self, name: str) -> Any:
        return self._params[name].resolve(suppress_exception=self.suppress_exception)

    def __setitem__(self, name: str, value: Any) -> None:
        """Give a parameter a value (checked by its schema), or declare a new one."""
        if isinstance(value, Param):
            self._params[name] = value
        elif name in self._params:
            old = self._params[name]
            checked = old.resolve(value, self.suppress_exception)
            self._params[name] = Param(checked, old.description, schema=old.schema, source=old.source)
        else:
            self._params[name] = Param(value)

    def __delitem__(self, name: str) -> None:
        del self._params[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)

    def __contains__(self, name: object) -> bool:
        return name in self._params

    def get_param(self, name: str) -> Param:
        return self._params[name]

    def dump(self) -> dict[str, Any]:
        """Every value, by name; a value that breaks its schema is reported with the parameter's name."""
        values = {}
        for name, param in self._params.items():
            try:
                values[name] = param.resolve(suppress_exception=self.suppress_exception)
            except ParamValidationError as error:
                raise ParamValidationError(f"The parameter {name!r} cannot be used: {error}.") from None
        return values

    def validate(self) -> dict[str, Any]:
        return self.dump()

    def __repr__(self) -> str:
        return repr({name: param.value for name, param in self._params.items()})
