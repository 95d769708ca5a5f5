"""From what is stored to a trigger: finds the class by its dotted path and makes the trigger from its arguments."""

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from stannel.errors import StannelError
from stannel.triggers.base import ENCRYPTED_PREFIX, BaseTrigger


class CodeNotFound(StannelError):
    """Code that is named by its dotted path cannot be used here; whoever waits for it is told."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"{path!r} cannot be loaded: {reason}. "
            "Put its module into the DAG folder or install its package where the triggerer runs."
        )
        self.path, self.reason = path, reason


def load_trigger(classpath: str, kwargs: Mapping[str, Any]) -> BaseTrigger:
    """The trigger that `serialize` described. What its constructor raises is left as it is."""
    return find_trigger(classpath)(**plain_arguments(kwargs))


def find_trigger(classpath: str) -> type[BaseTrigger]:
    """The class of that dotted path; it may stand inside another class. `CodeNotFound` says why there is none."""
    found = find_object(classpath)
    if not isinstance(found, type):
        raise CodeNotFound(classpath, f"it is no class but a {type(found).__name__}")
    if not issubclass(found, BaseTrigger):
        raise CodeNotFound(classpath, "the class does not inherit from BaseTrigger")
    return found


def find_object(path: str) -> Any:
    """Whatever has that dotted path, in the longest part of it that is a module."""
    steps = path.split(".")
    if len(steps) < 2 or not all(steps):
        raise CodeNotFound(path, "a dotted path such as 'my_package.my_module.MyTrigger' is needed")
    for cut in range(len(steps) - 1, 0, -1):
        module = _module(path, ".".join(steps[:cut]))
        if module is not None:
            return _inside(path, module, steps[cut:])
    raise CodeNotFound(path, f"there is no module {steps[0]!r}")


def _module(path: str, name: str) -> ModuleType | None:
    """The module of that name. None: there is none, so the name's end is that of a class."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            return None
        raise CodeNotFound(path, f"{name} needs the module {missing!r}, which is not installed") from error
    # A module of an author may fail in any way while it is imported.
    except (Exception, SystemExit) as error:
        raise CodeNotFound(path, f"importing {name} raised {type(error).__name__}: {error}") from error


def _inside(path: str, module: ModuleType, steps: list[str]) -> Any:
    found: Any = module
    for step in steps:
        try:
            found = getattr(found, step)
        except AttributeError:
            where = module.__name__ if found is module else found.__qualname__
            raise CodeNotFound(path, f"there is no {step!r} in {where}") from None
    return found


def plain_arguments(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the constructor names them: without the prefix that marks them as secret."""
    plain: dict[str, Any] = {}
    for name, value in kwargs.items():
        bare = name.removeprefix(ENCRYPTED_PREFIX)
        if bare in plain:
            raise TypeError(f"The argument {bare!r} is given twice, with and without {ENCRYPTED_PREFIX!r}.")
        plain[bare] = value
    return plain
