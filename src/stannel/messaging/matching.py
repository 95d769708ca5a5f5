"""Which messages a trigger wants: by the values of fields, or by a function that is named by its dotted path."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from stannel.messaging.message import Message
from stannel.triggers.loading import find_object

_ABOUT = "@"
_MISSING: Any = object()


def matches(message: Message, where: Mapping[str, Any]) -> bool:
    """Whether every field named in `where` has the value given there, or one of those in a list.

    `"order.status"` is a field inside a field of the content; `"@key"` and `"@headers.type"` are what the broker says
    about the message. None stands for a field that is null or is not there.
    """
    return all(_fits(_found(message, path), wanted) for path, wanted in where.items())


def _found(message: Message, path: str) -> Any:
    place: Any = message.about if path.startswith(_ABOUT) else message.value
    for step in path.removeprefix(_ABOUT).split("."):
        if not isinstance(place, Mapping) or step not in place:
            return _MISSING
        place = place[step]
    return place


def _fits(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, list | tuple | set | frozenset):
        return any(_fits(found, one) for one in wanted)
    if wanted is None:
        return found is None or found is _MISSING
    # In JSON true is not 1, though Python thinks so.
    return type(found) is type(wanted) and found == wanted if isinstance(wanted, bool) else bool(found == wanted)


def path_of(function: str | Callable[..., Any]) -> str:
    """The dotted path of a function, by which it is found again in another process."""
    if isinstance(function, str):
        return function
    path = f"{function.__module__}.{function.__qualname__}"
    if "<" in path:
        raise ValueError(
            f"{path} cannot be found by its path in another process; give a function that stands in a module."
        )
    return path


async def applied(path: str, message: Message, kwargs: Mapping[str, Any]) -> Any:
    """The payload that the function of that path makes of the message. None: it wants none of it.

    It gets the message as a dict. True means the message as it is; it may be `async def`. A plain function is called
    in place, so it must not block, and so that it may refuse the event.
    """
    payload = message.payload()
    answer = find_object(path)(payload, **kwargs)
    if inspect.isawaitable(answer):
        answer = await answer
    if answer is None or answer is False:
        return None
    return payload if answer is True else answer
