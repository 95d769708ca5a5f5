"""Triggers that are to stop because nobody waits for them any more; whoever runs them is told why."""

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, select, update

from stannel.model.states import TriggerState
from stannel.store.database import TRIGGERER
from stannel.store.schema import trigger
from stannel.store.sql import Tx, among, word

W = TriggerState

# Whoever runs it has to be told; a trigger nobody runs is simply gone.
_TELL_OWNER = (
    update(trigger)
    .where(among(trigger.c.pk, "pks"), trigger.c.state == word(W.WAITING), trigger.c.owner.is_not(None))
    .values(state=W.ENDED)
)
_FORGET_FREE = delete(trigger).where(among(trigger.c.pk, "pks"), trigger.c.owner.is_(None))
# A trigger that waits for a moment has nothing to kill. The others are owed their `on_kill`, whether they run or not.
_KILL = (
    update(trigger)
    .where(among(trigger.c.ti_pk, "pks"), trigger.c.state == word(W.WAITING), trigger.c.due_at.is_(None))
    .values(state=W.KILLED)
)
_KILL_MOMENTS = delete(trigger).where(among(trigger.c.ti_pk, "pks"), trigger.c.due_at.is_not(None))
_OF_RUN = select(trigger.c.ti_pk, trigger.c.pk).where(
    trigger.c.run_pk == bindparam("run"), trigger.c.state == word(W.WAITING)
)


def stop_triggers(tx: Tx, pks: Sequence[int]) -> None:
    """These waits are over without anybody's wish: no `on_kill` is owed."""
    if pks:
        tx.run(_TELL_OWNER, pks=list(pks))
        tx.run(_FORGET_FREE, pks=list(pks))
        tx.wake(TRIGGERER)


def kill_waits(tx: Tx, ti_pks: Sequence[int]) -> None:
    """A person ended what these instances waited for: their triggers' `on_kill` is owed."""
    tx.run(_KILL_MOMENTS, pks=list(ti_pks))
    if tx.run(_KILL, pks=list(ti_pks)):
        tx.wake(TRIGGERER)


def stop_waits_of_run(tx: Tx, run_pk: int, *, by_person: bool) -> None:
    """Nothing in this run is waited for any more."""
    rows = tx.all(_OF_RUN, run=run_pk)
    if not rows:
        return
    if by_person:
        kill_waits(tx, [row[0] for row in rows])
        return
    stop_triggers(tx, [row[1] for row in rows])
