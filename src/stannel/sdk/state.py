"""What authors of backends for state stores import."""

from stannel.model.state_store import AssetScope, BaseStoreBackend, StoreScope, TaskScope
from stannel.sdk.state_store import NEVER_EXPIRE

__all__ = ["NEVER_EXPIRE", "AssetScope", "BaseStoreBackend", "StoreScope", "TaskScope"]
