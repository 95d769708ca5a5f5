"""Templates in task fields. The only module of the SDK that imports Jinja2; it is loaded when a field needs it."""

from collections import ChainMap
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.nativetypes

from stannel.sdk.references import Reference
from stannel.sdk.template_marks import LiteralValue, has_marks


def _moment(format_text: str) -> Any:
    def convert(value: datetime | None) -> str | None:
        return None if value is None else value.strftime(format_text)

    return convert


FILTERS = {
    "ds": _moment("%Y-%m-%d"),
    "ds_nodash": _moment("%Y%m%d"),
    "ts": lambda value: None if value is None else value.isoformat(),
    "ts_nodash": _moment("%Y%m%dT%H%M%S"),
    "ts_nodash_with_tz": lambda value: None if value is None else value.isoformat().replace("-", "").replace(":", ""),
}


def environment_of(dag: Any, task: Any = None) -> jinja2.Environment:
    """The environment a DAG asks for: its search path, macros, filters and whether values stay Python objects."""
    own = getattr(task, "render_template_as_native_obj", None)
    native = own if own is not None else bool(dag is not None and dag.render_template_as_native_obj)
    kind = jinja2.nativetypes.NativeEnvironment if native else jinja2.Environment
    options: dict[str, Any] = {"undefined": jinja2.StrictUndefined, "cache_size": 0, "keep_trailing_newline": True}
    if dag is not None:
        folders = [dag.folder, *(dag.template_searchpath or ())]
        options["loader"] = jinja2.FileSystemLoader([str(Path(folder)) for folder in folders])
        options.update(dag.jinja_environment_kwargs or {})
    environment = kind(**options)
    environment.filters.update(FILTERS)
    if dag is not None:
        environment.globals.update(dag.user_defined_macros or {})
        environment.filters.update(dag.user_defined_filters or {})
    return environment


class Renderer:
    """Renders the fields of one task in one context; `rendered` says whether there was a template at all."""

    def __init__(self, task: Any, context: Any, environment: jinja2.Environment | None = None) -> None:
        self._task, self._context, self._given = task, context, environment
        self._made: jinja2.Environment | None = None
        # What came out of another task is data, even if it looks like a template.
        self._finished: frozenset[int] = getattr(task, "finished_values", frozenset())
        self._extensions = tuple(getattr(task, "template_ext", ()))
        self.rendered = False

    @property
    def _environment(self) -> jinja2.Environment:
        if self._made is None:
            self._made = self._given or environment_of(self._task._dag, self._task)
        return self._made

    def render(self, value: Any) -> Any:
        """The value with templates rendered, files read and references resolved, however deep they lie."""
        if id(value) in self._finished:
            return value
        if isinstance(value, str):
            return self._render_text(value)
        if isinstance(value, Reference):
            return value.resolve(self._context)
        if isinstance(value, LiteralValue):
            return value.value
        if isinstance(value, dict):
            return {key: self.render(item) for key, item in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.render(item) for item in value))
        if isinstance(value, list | tuple | set):
            return type(value)(self.render(item) for item in value)
        if hasattr(value, "template_fields") and value is not self._task:
            for field in value.template_fields:
                setattr(value, field, self.render(getattr(value, field)))
        return value

    def _render_text(self, text: str) -> Any:
        # A trailing space keeps a text that merely ends like a file name from being read as one.
        if self._extensions and text.endswith(self._extensions):
            template = self._environment.get_template(text)
        elif has_marks(text):
            template = self._environment.from_string(text)
        else:
            return text
        self.rendered = True
        # The context computes its values when they are read; copying it into a dict would read them all.
        names: Any = ChainMap(self._context, template.globals)
        scope = template.new_context(names, shared=True)
        try:
            return self._environment.concat(template.root_render_func(scope))
        except Exception:  # noqa: BLE001 - Jinja2 raises it again, pointing into the template
            self._environment.handle_exception()
