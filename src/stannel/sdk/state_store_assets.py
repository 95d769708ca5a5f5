"""The state store of assets as task code uses it: `context["asset_state_store"]`, the same keys in all runs."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stannel.model.state_store import AssetScope, check_key
from stannel.protocol.requests import (
    ChangeStateStore,
    ClearAssetStateStoreByName,
    ClearAssetStateStoreByUri,
    DeleteAssetStateStoreByName,
    DeleteAssetStateStoreByUri,
    GetAssetsByAlias,
    GetAssetStateStoreByName,
    GetAssetStateStoreByUri,
    Request,
    SetAssetStateStoreByName,
    SetAssetStateStoreByUri,
)
from stannel.sdk import comms
from stannel.sdk.assets.definition import Asset, AssetAlias, AssetLike, AssetNameRef, AssetUriRef
from stannel.sdk.state_store import KeyStore, beside


class AssetStateStore(KeyStore):
    """The keys of one asset, the same for every task and run that uses it. They never expire."""

    def __init__(self, *, name: str | None = None, uri: str | None = None) -> None:
        super().__init__(AssetScope(name=name, uri=uri))
        self._name, self._uri = name, uri

    def set(self, key: str, value: Any) -> None:
        """Keep a JSON value."""
        stored = self._stored(check_key(key), value)
        if self._name is not None:
            comms.ask(SetAssetStateStoreByName(self._name, key, stored))
        else:
            comms.ask(SetAssetStateStoreByUri(str(self._uri), key, stored))

    def update(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        remove: Iterable[str] = (),
        expect: Mapping[str, Any] | None = None,
    ) -> bool:
        """Set and remove several keys in one transaction. False: something is not as expected, nothing was done."""
        return self._change(values or {}, remove, expect or {}, None)

    def compare_and_set(self, key: str, expected: Any, value: Any) -> bool:
        """Set the key if it has the expected value; None: if there is no such key. False: it was left alone."""
        return self.update({key: value}, expect={key: expected})

    async def aset(self, key: str, value: Any) -> None:
        await beside(self.set, key, value)

    async def aupdate(self, values: Mapping[str, Any] | None = None, **options: Any) -> bool:
        return await beside(self.update, values, **options)

    async def acompare_and_set(self, key: str, expected: Any, value: Any) -> bool:
        return await beside(self.compare_and_set, key, expected, value)

    def _get_request(self, key: str) -> Request:
        if self._name is not None:
            return GetAssetStateStoreByName(self._name, key)
        return GetAssetStateStoreByUri(str(self._uri), key)

    def _delete_request(self, key: str) -> Request:
        if self._name is not None:
            return DeleteAssetStateStoreByName(self._name, key)
        return DeleteAssetStateStoreByUri(str(self._uri), key)

    def _clear_request(self) -> Request:
        if self._name is not None:
            return ClearAssetStateStoreByName(self._name)
        return ClearAssetStateStoreByUri(str(self._uri))

    def _change_request(self, **changes: Any) -> ChangeStateStore:
        return ChangeStateStore(name=self._name, uri=self._uri, **changes)


class AssetStateStores:
    """`asset_state_store[asset]`; with one asset, its methods can be called without naming it."""

    def __init__(self, inlets: Iterable[Any], outlets: Iterable[Any]) -> None:
        self._inlets, self._outlets = list(inlets), list(outlets)
        self._found: dict[tuple[str, str], AssetStateStore] | None = None

    def __getitem__(self, key: Any) -> AssetStateStore:
        match key:
            case Asset(name=name) | AssetNameRef(name=name):
                place = ("name", name)
            case AssetUriRef(uri=uri):
                place = ("uri", uri)
            case _:
                raise TypeError(f"asset_state_store is read by an asset or a reference to one, not by {key!r}")
        try:
            return self._stores()[place]
        except KeyError:
            raise KeyError(f"{key!r} is neither an inlet nor an outlet of this task") from None

    def __iter__(self) -> Iterator[Any]:
        return (AssetNameRef(text) if kind == "name" else AssetUriRef(text) for kind, text in self._stores())

    def __len__(self) -> int:
        return len(self._stores())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(AssetStateStore, name):
            raise AttributeError(name)
        return getattr(self._only(), name)

    def _only(self) -> AssetStateStore:
        stores = list(self._stores().values())
        if len(stores) != 1:
            raise ValueError(
                f"The task has {len(stores)} assets; say which one is meant, as in context['asset_state_store'][asset]"
            )
        return stores[0]

    def _stores(self) -> dict[tuple[str, str], AssetStateStore]:
        if self._found is None:
            self._found = {place: AssetStateStore(**dict([place])) for place in self._places()}
        return self._found

    def _places(self) -> Iterator[tuple[str, str]]:
        for one in (*self._inlets, *self._outlets):
            match one:
                case Asset(name=name) | AssetNameRef(name=name):
                    yield "name", name
                case AssetUriRef(uri=uri):
                    yield "uri", uri
                case _:
                    continue
        for one in self._inlets:
            if isinstance(one, AssetAlias):
                for meant in comms.ask(GetAssetsByAlias(one.name)).assets:
                    yield "name", meant.name


def has_assets(inlets: Iterable[Any], outlets: Iterable[Any]) -> bool:
    """Whether a task with these inlets and outlets has a store of assets."""
    return any(isinstance(one, AssetLike) for one in (*inlets, *outlets))
