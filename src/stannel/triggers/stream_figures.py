"""What operators ask of a stream: how far it is, how much is owed, and by whom."""

from collections.abc import Hashable

import msgspec

from stannel.triggers.ledger import Ledger


class StreamFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One stream at one moment. `owed_by` owe the oldest outstanding event; no age: nothing is outstanding."""

    key: str
    subscribers: int
    online: int
    depth: int
    lanes: int
    outstanding: int
    oldest_age: float | None
    owed_by: tuple[int, ...]
    admitted: int
    advanced: int
    failed: int
    rejected: int
    redelivered: int
    duplicates: int


def figures(key: Hashable, ledger: Ledger, now: float) -> StreamFigures:
    heads = [lane.first for lane in ledger.lanes.values() if lane.first is not None]
    oldest = min(heads, key=lambda entry: entry.born, default=None)
    readers = [*ledger.readers.values()]
    debts = ledger.oldest_debts() if oldest is not None else {}
    return StreamFigures(
        key=repr(key),
        subscribers=len(readers),
        online=sum(reader.online for reader in readers),
        depth=max((ledger.end - reader.at for reader in readers), default=0),
        lanes=len(ledger.lanes),
        outstanding=ledger.outstanding,
        oldest_age=None if oldest is None else now - oldest.born,
        owed_by=tuple(
            sorted(number for number, debt in debts.items() if oldest is not None and debt.born <= oldest.born)
        ),
        admitted=ledger.advanced + ledger.outstanding,
        advanced=ledger.advanced,
        failed=ledger.failed,
        rejected=ledger.rejected,
        redelivered=ledger.redelivered,
        duplicates=ledger.duplicates,
    )
