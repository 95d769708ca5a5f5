"""Cheap answers to "does this need Jinja2?", so that tasks without templates never load it."""

from typing import Any

from stannel.sdk.references import Reference

_CONTAINERS = (dict, list, tuple, set)


class LiteralValue:
    """A text that looks like a template and must stay as it is."""

    def __init__(self, value: Any) -> None:
        self.value = value


def has_marks(text: str) -> bool:
    return "{" in text and ("{{" in text or "{%" in text or "{#" in text)


def needs_rendering(value: Any, extensions: tuple[str, ...], finished: frozenset[int] = frozenset()) -> bool:
    """True if the value holds a template, a template file's name, or an object with template fields of its own.

    `finished` are the identities of values that came out of other tasks and are data, whatever they look like.
    """
    if id(value) in finished:
        return False
    if isinstance(value, str):
        return has_marks(value) or bool(extensions and value.endswith(extensions))
    if isinstance(value, dict):
        return any(needs_rendering(item, extensions, finished) for item in value.values())
    if isinstance(value, _CONTAINERS):
        return any(needs_rendering(item, extensions, finished) for item in value)
    if isinstance(value, LiteralValue):
        return True
    return not isinstance(value, Reference) and hasattr(value, "template_fields")


def task_needs_rendering(task: Any) -> bool:
    """True if some field of the task needs Jinja2 when it runs."""
    if task.is_mapped:
        extensions = tuple(task.operator_class.template_ext)
        return needs_rendering([task.partial_kwargs, task.expand_input.arguments], extensions)
    extensions = tuple(getattr(task, "template_ext", ()))
    finished: frozenset[int] = getattr(task, "finished_values", frozenset())
    return any(needs_rendering(getattr(task, field, None), extensions, finished) for field in task.template_fields)
