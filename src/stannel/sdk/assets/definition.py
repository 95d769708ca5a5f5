"""`Asset` and everything that names assets: aliases, references, conditions, watchers."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from stannel.model.asset import AllOf, AnyOf, AnyOfAlias, AssetAt, AssetNamed, Condition, Reference, ThisAsset
from stannel.sdk.assets.schedule import ScheduledOnAssets
from stannel.sdk.assets.uri import checked_name, checked_text, normalized
from stannel.triggers.base import BaseEventTrigger


class BaseAsset(ScheduledOnAssets):
    """Anything a DAG can be scheduled on; `|` and `&` make conditions of it."""

    def __or__(self, other: Any) -> "AssetAny":
        return AssetAny(self, other) if isinstance(other, BaseAsset) else NotImplemented

    def __and__(self, other: Any) -> "AssetAll":
        return AssetAll(self, other) if isinstance(other, BaseAsset) else NotImplemented

    def as_expression(self) -> dict[str, Any]:
        """The condition as plain data, for people and for JSON."""
        raise NotImplementedError

    def iter_assets(self) -> Iterator["Asset"]:
        return (one for one in self.parts() if isinstance(one, Asset))


class AssetLike(BaseAsset):
    """One thing that can be an inlet or an outlet of a task."""

    def reference(self) -> Reference:
        """How the engine is told which one it is."""
        raise NotImplementedError

    def condition(self) -> Condition:
        return self.reference()

    def parts(self) -> Iterator[Any]:
        yield self


class AssetWatcher:
    """Updates an asset whenever its trigger fires."""

    def __init__(self, name: str, trigger: BaseEventTrigger) -> None:
        if not isinstance(trigger, BaseEventTrigger):
            raise ValueError(
                f"The watcher {name!r} needs an instance of BaseEventTrigger, not {trigger!r}: a trigger whose "
                "condition stays true would start runs without end."
            )
        self.name, self.trigger = checked_text("watcher", name), trigger

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AssetWatcher):
            return NotImplemented
        mine, others = (self.name, self.trigger.serialize()), (other.name, other.trigger.serialize())
        return mine == others and self.trigger.queue == other.trigger.queue

    def __hash__(self) -> int:
        return hash((self.name, type(self.trigger)))

    def __repr__(self) -> str:
        return f"AssetWatcher(name={self.name!r}, trigger={self.trigger!r})"


@dataclass(frozen=True)
class AssetAccessControl:
    """Accepted, because DAG files give it; Stannel has no teams."""

    producer_teams: list[str] = field(default_factory=list)
    consumer_teams: list[str] | None = None
    allow_global: bool = True


class Asset(AssetLike):
    """Something that tasks produce or the world changes: `Asset("orders", uri="s3://shop/orders")`.

    Its name and uri together are its identity; when one is missing, it is the other.
    """

    asset_type: ClassVar[str] = "asset"

    def __init__(
        self,
        name: str | None = None,
        uri: Any = None,
        *,
        group: str | None = None,
        extra: dict[str, Any] | None = None,
        watchers: "list[AssetWatcher] | tuple[AssetWatcher, ...] | None" = None,
        access_control: AssetAccessControl | None = None,
    ) -> None:
        if name is None and uri is None:
            raise TypeError("an asset needs a name or a uri")
        self.uri = normalized(uri if uri is not None else name)
        self.name = checked_name(name if name is not None else self.uri)
        self.group = self.asset_type if group is None else checked_text("group", group)
        self.extra: dict[str, Any] = dict(extra or {})
        self.watchers = list(watchers or ())
        self.access_control = access_control
        for one in self.watchers:
            if not isinstance(one, AssetWatcher):
                raise TypeError(f"the watchers of the asset {self.name!r} are AssetWatchers, not {one!r}")

    @staticmethod
    def ref(*, name: str | None = None, uri: str | None = None) -> "AssetRef":
        """The asset that somebody else defines, by its name or its uri."""
        if (name is None) == (uri is None):
            raise TypeError("Asset.ref() takes either a name or a uri")
        return AssetNameRef(name) if name is not None else AssetUriRef(str(uri))

    def reference(self) -> ThisAsset:
        return ThisAsset(self.name, self.uri)

    @property
    def normalized_uri(self) -> str:
        return self.uri

    def as_expression(self) -> dict[str, Any]:
        return {"asset": {"name": self.name, "uri": self.uri, "group": self.group}}

    def __fspath__(self) -> str:
        return self.uri

    def __eq__(self, other: object) -> bool:
        return self._content() == other._content() if isinstance(other, Asset) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.name, self.uri))

    def _content(self) -> tuple[Any, ...]:
        return self.name, self.uri, self.group, self.extra, self.watchers

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, uri={self.uri!r})"


class Dataset(Asset):
    """An asset that is data."""

    asset_type = "dataset"


class Model(Asset):
    """An asset that is a trained model."""

    asset_type = "model"


class AssetRef(AssetLike):
    """An asset that is defined elsewhere."""


@dataclass(frozen=True)
class AssetNameRef(AssetRef):
    """The asset of that name."""

    name: str

    def reference(self) -> AssetNamed:
        return AssetNamed(self.name)

    def as_expression(self) -> dict[str, Any]:
        return {"asset_ref": {"name": self.name}}


@dataclass(frozen=True)
class AssetUriRef(AssetRef):
    """The asset of that uri."""

    uri: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "uri", normalized(self.uri))

    def reference(self) -> AssetAt:
        return AssetAt(self.uri)

    def as_expression(self) -> dict[str, Any]:
        return {"asset_ref": {"uri": self.uri}}


class AssetAlias(AssetLike):
    """A name under which tasks emit events of assets that they only know when they run."""

    def __init__(self, name: str, *, group: str = "asset") -> None:
        self.name, self.group = checked_name(name), checked_text("group", group)

    def reference(self) -> AnyOfAlias:
        return AnyOfAlias(self.name)

    def as_expression(self) -> dict[str, Any]:
        return {"alias": {"name": self.name, "group": self.group}}

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, AssetAlias) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"AssetAlias(name={self.name!r})"


class _Several(BaseAsset):
    """A condition over several others."""

    def __init__(self, *objects: BaseAsset) -> None:
        if not all(isinstance(one, BaseAsset) for one in objects):
            raise TypeError(f"{type(self).__name__} takes assets, aliases, references and conditions, not {objects!r}")
        # `a | b | c` is one condition of three, not a condition of a condition.
        self.objects: list[BaseAsset] = []
        for one in objects:
            self.objects += one.objects if isinstance(one, _Several) and type(one) is type(self) else [one]

    def parts(self) -> Iterator[Any]:
        for one in self.objects:
            yield from one.parts()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Several) and type(self) is type(other) and self.objects == other.objects

    def __hash__(self) -> int:
        return hash((type(self), tuple(self.objects)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.objects))})"


class AssetAny(_Several):
    """Satisfied as soon as one of them was updated."""

    def condition(self) -> AnyOf:
        return AnyOf(tuple(one.condition() for one in self.objects))

    def as_expression(self) -> dict[str, Any]:
        return {"any": [one.as_expression() for one in self.objects]}


class AssetAll(_Several):
    """Satisfied when each of them was updated."""

    def condition(self) -> AllOf:
        return AllOf(tuple(one.condition() for one in self.objects))

    def as_expression(self) -> dict[str, Any]:
        return {"all": [one.as_expression() for one in self.objects]}


@dataclass(frozen=True)
class Metadata:
    """Yielded by a task to say more about the event of an outlet; with `alias`, the asset is emitted through it."""

    asset: Any
    extra: dict[str, Any] = field(default_factory=dict)
    alias: Any = None
