"""`@asset`: a function that makes an asset, the asset itself, and the DAG of one task that runs it, in one."""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from stannel.model.asset import AllOf
from stannel.protocol.requests import GetAssetByName
from stannel.sdk import comms
from stannel.sdk.assets.definition import Asset, AssetLike, AssetNameRef, BaseAsset
from stannel.sdk.dags import DAG
from stannel.sdk.decorators import TaskDecorator
from stannel.sdk.operators.python import PythonOperator

_SELF, _CONTEXT, _OUTLET_EVENTS = "self", "context", "outlet_events"
_RESERVED = frozenset({_SELF, _CONTEXT, _OUTLET_EVENTS})
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class AssetFunctionOperator(PythonOperator):
    """Calls the function of an `@asset` with the assets that its parameters name."""

    custom_operator_name = "@asset"

    def __init__(self, *, definition: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.definition = definition

    def execute(self, context: Any) -> Any:
        self.op_kwargs = {**dict(self._arguments(context)), **self.op_kwargs}
        return self.execute_callable(context)

    def _arguments(self, context: Any) -> Iterator[tuple[str, Any]]:
        for name, parameter in inspect.signature(self.python_callable).parameters.items():
            if name == _SELF:
                yield name, self.definition
            elif name == _CONTEXT:
                yield name, context
            elif name == _OUTLET_EVENTS:
                yield name, context[_OUTLET_EVENTS]
            elif parameter.default is inspect.Parameter.empty:
                yield name, _fetched(name)


def _fetched(name: str) -> Asset:
    found = comms.ask(GetAssetByName(name))
    return Asset(found.name, found.uri, group=found.group, extra=found.extra or {})


class AssetDefinition(Asset):
    """The asset of an `@asset` function; use it wherever an asset can be."""

    def __init__(self, function: Callable[..., Any], **fields: Any) -> None:
        super().__init__(**fields)
        self.function = function


class MultiAssetDefinition(BaseAsset):
    """The assets of an `@asset.multi` function; as a schedule it means all of them."""

    def __init__(self, function: Callable[..., Any], name: str, outlets: Collection[AssetLike]) -> None:
        self.function, self.name, self.outlets = function, name, list(outlets)

    def condition(self) -> AllOf:
        return AllOf(tuple(one.condition() for one in self.outlets))

    def parts(self) -> Iterator[Any]:
        yield from self.outlets


class AssetDecorator:
    """`@asset(...)` and `@asset.multi(...)`."""

    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        *,
        schedule: Any = None,
        name: str | None = None,
        dag_id: str | None = None,
        uri: Any = None,
        group: str | None = None,
        extra: dict[str, Any] | None = None,
        watchers: Any = None,
        access_control: Any = None,
        **dag_settings: Any,
    ) -> Any:
        """Make a module-level function an asset and a DAG of the same name; its parameters name what it reads."""
        if function is not None:
            raise TypeError("write @asset(schedule=...), not @asset alone: it has to say when the asset is made")

        def decorate(function: Any) -> AssetDefinition:
            plain, task_settings = _plain(function)
            title = name or plain.__name__
            fields = {"group": group, "extra": extra, "watchers": watchers, "access_control": access_control}
            made = AssetDefinition(plain, name=title, uri=uri, **fields)
            settings = {"dag_id": dag_id or title, "schedule": schedule, **dag_settings}
            _build(made, [made], task_settings, settings)
            return made

        return decorate

    def multi(
        self,
        *,
        outlets: Collection[AssetLike],
        schedule: Any = None,
        name: str | None = None,
        dag_id: str | None = None,
        **dag_settings: Any,
    ) -> Any:
        """Make a module-level function a DAG that updates several assets at once."""
        if not outlets or not all(isinstance(one, AssetLike) for one in outlets):
            raise TypeError(f"@asset.multi(outlets=) is a list of assets, not {outlets!r}")

        def decorate(function: Any) -> MultiAssetDefinition:
            plain, task_settings = _plain(function)
            title = name or plain.__name__
            made = MultiAssetDefinition(plain, title, outlets)
            _build(made, outlets, task_settings, {"dag_id": dag_id or title, "schedule": schedule, **dag_settings})
            return made

        return decorate


asset = AssetDecorator()


def _plain(function: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function itself, and the settings of a `@task` that was written below."""
    settings: dict[str, Any] = {}
    if isinstance(function, TaskDecorator):
        settings, function = dict(function.settings), function.function
        if settings.get("outlets"):
            raise TypeError(f"@task below @asset cannot have outlets: {function.__name__}() has those of its @asset")
    if "<locals>" in function.__qualname__:
        raise ValueError(f"@asset needs a function at the top of a module, and {function.__name__}() is nested")
    if any(one.kind in _VARIABLE for one in inspect.signature(function).parameters.values()):
        raise TypeError(f"the parameters of {function.__name__}() name assets, so it cannot have *args or **kwargs")
    return function, settings


def _build(
    definition: AssetDefinition | MultiAssetDefinition,
    outlets: Collection[AssetLike],
    task_settings: Mapping[str, Any],
    dag_settings: Mapping[str, Any],
) -> None:
    function = definition.function
    doc = inspect.cleandoc(function.__doc__) if function.__doc__ else None
    inlets = [*_inlets(function), *(task_settings.get("inlets") or [])]
    with DAG(**{"catchup": False, "doc_md": doc, **dag_settings}):
        settings = {"task_id": definition.name, **task_settings, "inlets": inlets, "outlets": list(outlets)}
        AssetFunctionOperator(python_callable=function, definition=definition, **settings)


def _inlets(function: Callable[..., Any]) -> list[AssetNameRef]:
    parameters = inspect.signature(function).parameters
    return [
        AssetNameRef(name)
        for name, one in parameters.items()
        if name not in _RESERVED and one.default is inspect.Parameter.empty
    ]
