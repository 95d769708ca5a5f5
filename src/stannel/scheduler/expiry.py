"""Deletes what task instances kept and nobody can read any more, a little at a time."""

from datetime import datetime

from stannel.store import Store

BATCH = 1000
# In one go; the rest has time until the next.
_BATCHES = 10


def forget_expired_state(store: Store, now: datetime, *, batch: int = 0) -> int:
    """Delete keys that have expired; how many. Readers do not see them anyway, so nobody waits for this."""
    most, deleted = batch or BATCH, 0
    for _ in range(_BATCHES):
        some = store.state_stores.delete_expired(now, most)
        deleted += some
        if some < most:
            break
    return deleted
