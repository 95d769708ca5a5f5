"""Says of a trigger what it waits for, and when nobody runs it, why not."""

from collections.abc import Iterable
from datetime import datetime

from stannel.cli.output import moment
from stannel.model.states import TriggerState
from stannel.model.trigger import EVERY_QUEUE
from stannel.store.leases import Lease
from stannel.store.trigger_records import TriggerRecord, WatchRecord

NO_TRIGGERER = "no triggerer is running; start one with: stannel triggerer"


class Triggerers:
    """The triggerers at work at one moment, and what they make of a trigger."""

    def __init__(self, leases: Iterable[Lease], now: datetime) -> None:
        self._now = now
        self._at_work = {one.owner: one for one in leases if one.kind == "triggerer" and one.is_live(now)}

    def waits_for(self, one: TriggerRecord) -> str:
        """What has to happen next, as a clause."""
        match one.state:
            case TriggerState.ENDED if one.watch is not None:
                return "nobody wants it any more; whoever runs it stops it"
            case TriggerState.ENDED:
                return "its time was up; whoever runs it stops it"
            case TriggerState.KILLED:
                return f"killed: {self.trouble(one) or 'its on_kill runs next'}"
            case TriggerState.KILLING:
                return "killed: its on_kill runs"
            case _ if one.watch is not None:
                return f"{self._watching(one.watch)}{self.more(one)}"
            case _:
                what = "its event" if one.due_at is None else f"the moment {moment(one.due_at)}"
                return f"{what}{self.more(one)}"

    def _watching(self, watch: WatchRecord) -> str:
        if watch.next_at is not None and watch.next_at > self._now:
            return f"its next attempt at {moment(watch.next_at)}, after {watch.attempts} that failed"
        return f"events; {watch.trouble}" if watch.trouble else "events"

    def more(self, one: TriggerRecord) -> str:
        """How long it may take, and what is missing, to be put behind what it waits for."""
        until = f", until {moment(one.deadline_at)} at the latest" if one.deadline_at else ""
        trouble = self.trouble(one)
        if trouble is None and one.due_at is None and one.owner not in self._at_work:
            trouble = "a triggerer takes it next"
        return f"{until}; {trouble}" if trouble else until

    def trouble(self, one: TriggerRecord) -> str | None:
        """Why nobody works for this trigger. None: somebody does, or will at once."""
        if one.due_at is not None:
            return None if self._at_work else NO_TRIGGERER
        return self._nobody(one)

    def _nobody(self, one: TriggerRecord) -> str | None:
        if one.owner is not None and (owner := self._at_work.get(one.owner)) is not None:
            sorrow = owner.detail.get("trouble")
            return f"its triggerer cannot go on: {sorrow}" if sorrow else None
        before = f"its triggerer {one.owner} is gone; " if one.owner is not None else ""
        serving = [other for other in self._at_work.values() if _serves(other, one.queue)]
        if serving:
            full = _all_full(serving)
            return f"{before}{full}" if full else None
        return f"{before}{self._unserved(one.queue)}"

    def _unserved(self, queue: str | None) -> str:
        if queue is not None:
            return f"no triggerer serves queue {queue!r}; start one with: stannel triggerer --queues {queue}"
        if self._at_work:
            return "every triggerer serves only its queues; start one for the rest with: stannel triggerer"
        return NO_TRIGGERER


def class_name(classpath: str) -> str:
    """The part of a class path that people know the trigger by."""
    return classpath.rpartition(".")[2]


def explain(one: TriggerRecord, triggerers: Triggerers) -> str:
    """Why the task of this trigger is deferred, as a clause."""
    what = f"it waits for {class_name(one.classpath)} (trigger {one.id}) since {moment(one.created_at)}"
    due = f", due at {moment(one.due_at)}" if one.due_at is not None else ""
    return f"{what}{due}{triggerers.more(one)}"


def _serves(triggerer: Lease, queue: str | None) -> bool:
    queues = triggerer.detail.get("queues")
    if queues is not None and EVERY_QUEUE in queues:
        return True
    return queues is None if queue is None else queue in (queues or ())


def _all_full(serving: list[Lease]) -> str | None:
    """That no triggerer takes any more. One that has not said yet how many it can take may have room."""
    if any("capacity" not in one.detail for one in serving):
        return None
    running = sum(int(one.detail.get("running", 0)) for one in serving)
    capacity = sum(int(one.detail["capacity"]) for one in serving)
    if running < capacity:
        return None
    sorrows = [str(one.detail["trouble"]) for one in serving if one.detail.get("trouble")]
    if sorrows and not capacity:
        return f"no triggerer can go on: {sorrows[0]}"
    return f"its triggerers are full: they run {running} of {capacity}"
