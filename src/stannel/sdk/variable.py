"""Variables: settings that live outside DAG files."""

import json
from collections.abc import Iterator
from typing import Any

from stannel.protocol.requests import DeleteVariable, GetVariable, GetVariableKeys, PutVariable
from stannel.sdk import comms, environment
from stannel.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError
from stannel.sdk.log import mask_secret
from stannel.sdk.notset import NOTSET, ArgNotSet

_PAGE = 1000


class _NoSuchVariable(AirflowRuntimeError, AirflowNotFoundException, KeyError):
    """Authors catch any of the three."""

    __str__ = Exception.__str__


class Variable:
    """Read and write variables: `Variable.get("threshold", default=5)`."""

    @classmethod
    def get(
        cls,
        key: str,
        default: Any = NOTSET,
        deserialize_json: bool = False,
        *,
        default_var: Any = NOTSET,
    ) -> Any:
        """The variable's value, or the default; without a default a missing variable is an error."""
        text = cls._find(key)
        if text is not None:
            return json.loads(text) if deserialize_json else text
        default = default if not isinstance(default, ArgNotSet) else default_var
        if isinstance(default, ArgNotSet):
            raise _NoSuchVariable(_missing(key), "VARIABLE_NOT_FOUND", {"key": key})
        return default

    @staticmethod
    def _find(key: str) -> str | None:
        text = environment.lookup("VAR", key)
        if text is not None:
            mask_secret(text, key)
            return text
        if comms.current_channel() is None:
            return None
        try:
            answer = comms.ask(GetVariable(key))
        except AirflowRuntimeError as error:
            if error.error == "VARIABLE_NOT_FOUND":
                return None
            raise
        value: str | None = answer.value
        return value

    @classmethod
    def set(cls, key: str, value: Any, description: str | None = None, serialize_json: bool = False) -> None:
        """Store a variable for every DAG; it takes effect at once."""
        text = json.dumps(value, indent=2) if serialize_json else str(value)
        comms.ask(PutVariable(key, text, description))

    @classmethod
    def delete(cls, key: str) -> None:
        """Remove a variable; removing one that does not exist is fine."""
        comms.ask(DeleteVariable(key))

    @classmethod
    def keys(cls, prefix: str | None = None) -> list[str]:
        """The names of the stored variables, in order. Variables of the environment are not listed."""
        return list(cls._iter_keys(prefix))

    @staticmethod
    def _iter_keys(prefix: str | None) -> Iterator[str]:
        offset = 0
        while True:
            page = comms.ask(GetVariableKeys(prefix=prefix, limit=_PAGE, offset=offset))
            yield from page.keys
            offset += len(page.keys)
            if not page.keys or offset >= page.total_entries:
                return


def _missing(key: str) -> str:
    if comms.current_channel() is None:
        return (
            f"The variable {key!r} is not in the environment (STANNEL_VAR_{key.upper()}), and stored variables can "
            "be read only while a task runs. Read it inside the task, or use the template {{ var.value." + key + " }}."
        )
    return f"There is no variable {key!r}. Set it with: stannel variables set {key} VALUE"
