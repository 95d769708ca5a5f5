"""Makes the runs that asset events ask for: looks at DAGs for which events wait, and lets `consume` decide."""

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime

from stannel.model.asset import AnyOfAlias, Consumption, Grouping, Update, references
from stannel.model.dag import DagSpec
from stannel.model.ids import new_id, run_id_for
from stannel.model.moments import from_micros, to_micros
from stannel.model.run import RunType
from stannel.model.schedule import OnAssets
from stannel.scheduler.consume import AIRFLOW, Decision, Group, Past, Waiting, consume
from stannel.store import Store
from stannel.store.dags import DagStatus
from stannel.store.event_queue import (
    QueuedEvent,
    aliases_of_assets,
    backlog,
    busy_keys,
    consume_events,
    dags_to_look_at,
    drop_consumed,
    drop_queue,
    look_again,
    recent_runs,
    waiting_events,
)
from stannel.store.runs import NewRun, create_run, living_runs
from stannel.store.sql import Tx

log = logging.getLogger(__name__)

# A DAG with a run for each event need not have all that wait read, when only a few of them find room.
_FEWEST_READ, _READ_PER_PLACE = 100, 4
# So that one DAG's burst does not keep the runs of all the others waiting.
_MOST_RUNS_AT_ONCE = 100


def create_asset_runs(store: Store, now: datetime, *, most: int, max_active_runs: int) -> int:
    """Make the runs that waiting events ask for; how many DAGs were looked at. 0: nothing is new."""
    with store.transaction() as tx:
        found = dags_to_look_at(tx, to_micros(now), most)
        for status in found:
            if status.is_active and not status.is_paused and not status.is_broken:
                _Look(tx, status, store.dags.spec(status.version, tx), now).run(max_active_runs)
    return len(found)


class _Look:
    """One look at the events that wait for one DAG."""

    def __init__(self, tx: Tx, status: DagStatus, spec: DagSpec, now: datetime) -> None:
        self._tx, self._status, self._spec = tx, status, spec
        self._now = to_micros(now)

    def run(self, max_active_runs: int) -> None:
        tx, dag_id, schedule = self._tx, self._spec.dag_id, self._spec.schedule
        if not isinstance(schedule, OnAssets):
            if dropped := drop_queue(tx, dag_id):
                log.info("%d events no longer wait for the DAG %s, which is not scheduled on assets", dropped, dag_id)
            look_again(tx, dag_id, at=None)
            return
        room = (self._spec.max_active_runs or max_active_runs) - living_runs(tx, dag_id)
        if room <= 0:
            look_again(tx, dag_id, at=None, when_a_run_ends=True)
            return
        if self._catches_up(schedule):
            drop_consumed(tx, dag_id)
        decision, is_all = self._decide(schedule, min(room, _MOST_RUNS_AT_ONCE))
        for group in decision.runs:
            self._create(group, schedule)
        # Not everything was read, or there was more than is done at once.
        again = self._now if decision.runs and (not is_all or len(decision.runs) == _MOST_RUNS_AT_ONCE) else None
        look_again(
            tx,
            dag_id,
            at=decision.look_at if again is None else again,
            when_a_run_ends=decision.at_end_of_run and again is None,
        )

    def _decide(self, schedule: OnAssets, room: int) -> tuple[Decision, bool]:
        policy = schedule.consumption or AIRFLOW
        past = self._past(policy, room)
        most = max(_FEWEST_READ, _READ_PER_PLACE * room) if policy.grouping is Grouping.EACH else None
        decision, is_all = self._consume(schedule, past, most)
        if not is_all and not decision.runs:
            # What is needed may stand behind a long row of what is not.
            decision, is_all = self._consume(schedule, past, None)
        return decision, is_all

    def _consume(self, schedule: OnAssets, past: Past, most: int | None) -> tuple[Decision, bool]:
        keys = [key for key in past.busy_keys if key is not None]
        events = waiting_events(self._tx, self._spec.dag_id, without_keys=keys, most=most)
        waiting = self._described(schedule, events)
        decision = consume(waiting, schedule.condition, schedule.consumption, now=self._now, past=past)
        is_held = decision.at_end_of_run or bool(keys)
        return Decision(decision.runs, decision.look_at, is_held), most is None or len(events) < most

    def _described(self, schedule: OnAssets, events: Sequence[QueuedEvent]) -> Iterable[Waiting]:
        names_alias = any(isinstance(one, AnyOfAlias) for one in references(schedule.condition))
        aliases = aliases_of_assets(self._tx, (one.asset_pk for one in events)) if names_alias else {}
        for one in events:
            update = Update(one.name, one.uri, aliases.get(one.asset_pk, frozenset()))
            yield Waiting(one.event_pk, one.arrived, update, one.partition_key)

    def _past(self, policy: Consumption, room: int) -> Past:
        return Past(
            room=room,
            recent=recent_runs(self._tx, self._spec.dag_id, policy.rate_runs) if policy.rate_runs else (),
            busy_keys=busy_keys(self._tx, self._spec.dag_id) if policy.by_key and policy.ordered else frozenset(),
        )

    def _create(self, group: Group, schedule: OnAssets) -> None:
        # Nothing is later than its arrival, whatever its producer's clock says.
        moment = from_micros(max(one.arrived for one in group.everything))
        by_key = schedule.consumption is not None and schedule.consumption.by_key
        new = NewRun(
            run_id=f"{run_id_for(RunType.ASSET_TRIGGERED, moment)}_{new_id()[-8:]}",
            run_type=RunType.ASSET_TRIGGERED,
            run_after=moment,
            triggered_by="asset",
            partition_key=group.key if by_key else None,
        )
        run_pk = create_run(self._tx, self._status.version, self._spec, new, self._now)
        events = {one.event for one in group.events}
        if self._catches_up(schedule):
            events |= set(backlog(self._tx, self._spec.dag_id))
        superseded = [one.event for one in group.superseded]
        consume_events(self._tx, self._spec.dag_id, run_pk, sorted(events), superseded)

    def _catches_up(self, schedule: OnAssets) -> bool:
        """Airflow's rule: a DAG that catches up takes along every event of its assets that no run of it has had."""
        return self._spec.catchup and schedule.consumption is None
