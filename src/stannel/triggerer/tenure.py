"""The work of a triggerer under one lease: obeys, claims, shares with others, and tells the store what became of what.

Whatever asks the store which triggers are ours is done here, one after the other, so that no answer is older than what
was done since.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from stannel.errors import StannelError
from stannel.model.states import TriggerState
from stannel.model.trigger import EVERY_QUEUE, Failure, FailureReason, Firing, Trigger, Watch
from stannel.protocol.triggering import News
from stannel.store import Store
from stannel.store.database import RUN_ENDED
from stannel.triggerer.ends import End
from stannel.triggerer.held import Held
from stannel.triggerer.keeper import Desk, Keeper
from stannel.triggerer.news import RunNews
from stannel.triggerer.pacing import pause_after_failure
from stannel.triggerer.share import Peer, is_left_over, to_claim, to_release
from stannel.triggerer.threads import Threads

log = logging.getLogger(__name__)

_BATCH = 500
_PAUSE_AFTER_ERROR = 0.5
# At every so many beats the whole store is looked at: a net under what should not happen.
_THOROUGH_EVERY = 14
# Whoever comes and goes at once is not worth starting triggers again for.
_SURPLUS_BEATS = 3
# What a lease says is read by everybody at every beat.
_MOST_STREAMS = 100


class Office(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenure works with, and what outlives it."""

    store: Store
    capacity: int
    queues: tuple[str, ...] | None
    clock: Callable[[], datetime]
    threads: Threads
    desk: Desk


class Tenure:
    """One owner's time of work."""

    def __init__(self, office: Office, owner: str) -> None:
        self._office, self.owner = office, owner
        self._store, self._threads = office.store, office.threads
        self._keeper = Keeper(office.desk, owner, self.wake)
        self._news = RunNews(
            lambda: self._threads.call(self._store.listen, RUN_ENDED),
            lambda since: self._threads.call(self._store.questions.ended_runs, since),
            lambda dag_ids: self._keeper.hosts.tell(News(dag_ids)),
            office.clock,
        )
        self._wake = asyncio.Event()
        self._is_over = False
        self._beats = self._beats_seen = 0
        self._beat_at = office.clock()
        self._is_unsure = False
        self._may_take_over = True
        self._peers: list[Peer] = []
        self._left_over = self._surplus = 0
        self._unserved: list[str] = []
        self._trouble: str | None = None

    # --- from outside ----------------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        return self._keeper.count

    @property
    def pids(self) -> list[int]:
        return self._keeper.hosts.pids

    def wake(self) -> None:
        """There may be something to claim, to obey or to tell."""
        self._wake.set()

    def beat(self, now: datetime, *, was_stalled: bool, may_take_over: bool) -> None:
        """The lease was renewed. After a stall others may have taken something, and they may only seem dead."""
        self._beats += 1
        self._beat_at = now
        self._is_unsure = self._is_unsure or was_stalled
        self._may_take_over = may_take_over
        self._wake.set()

    def stored(self, results: Sequence[tuple[End, bool | None]]) -> None:
        """Ends of this owner's triggers were stored, or refused."""
        before = self._keeper.count
        if self._keeper.stored(results) and before >= self._office.capacity:
            self._wake.set()

    def end(self) -> None:
        """Claim nothing more; `run` returns."""
        self._is_over = True
        self._wake.set()

    def kill(self) -> None:
        """End the hosts now."""
        self._keeper.hosts.kill()

    def detail(self) -> dict[str, Any]:
        """What the lease says of this triggerer."""
        ends, hosts, queues = self._office.desk.ends, self._keeper.hosts, self._office.queues
        trouble = self._trouble or ends.trouble or hosts.trouble
        can_work = not self._is_over and hosts.trouble is None
        return {
            # Others share the load with those who can take some.
            "capacity": self._office.capacity if can_work else 0,
            "queues": None if queues is None else list(queues),
            "running": self._keeper.count,
            "hosts": hosts.count,
            "alone": hosts.quarantined,
            "fired": ends.stored,
            "to_store": ends.pending,
            # What came too late to count: others had taken the trigger over, or a person had ended the wait.
            "refused": ends.refused,
            **({"streams": hosts.streams[:_MOST_STREAMS]} if hosts.streams else {}),
            **({"unserved": self._unserved} if self._unserved else {}),
            **({"trouble": trouble} if trouble else {}),
        }

    async def run(self) -> None:
        """Work until told to end."""
        while not self._is_over:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._attend()
            except StannelError as error:
                log.error("The triggerer could not go on and tries again: %s", error)
                self._pause(str(error))
            except Exception as error:
                log.exception("The triggerer met a bug in itself and tries again")
                self._pause(f"{type(error).__name__}: {error}")
            else:
                self._trouble = None

    async def leave(self, *, is_lost: bool) -> None:
        """Let go of everything: hosts end, and say their last words."""
        self._news.stop()
        await self._keeper.close(is_lost=is_lost)

    async def give_back(self) -> None:
        """Give back in the store what is still held, and the lease; after the last events were stored."""
        if self._keeper.to_forget:
            await self._threads.call(self._store.triggers.forget, self.owner, self._keeper.to_forget)
        await self._threads.call(self._store.triggers.leave, self.owner)

    # --- one after the other ---------------------------------------------------------------------------------------

    async def _attend(self) -> None:
        is_beat, self._beats_seen = self._beats != self._beats_seen, self._beats
        if self._is_unsure or self._keeper.is_unsure:
            await self._check_holdings()
        await self._obey()
        await self._hand_in()
        if is_beat:
            await self._look_around()
        elif self._peers:
            # One of them may just have left, and all that it had waits to be taken.
            await self._see_peers()
        await self._claim(is_beat=is_beat)
        if is_beat:
            await self._rebalance()

    async def _check_holdings(self) -> None:
        known = await self._threads.call(self._store.triggers.held, self.owner)
        # One that a person killed is not held either, but its `on_kill` is owed: that has to be known first.
        await self._obey()
        self._keeper.compare(known)
        self._is_unsure = self._keeper.is_unsure = False

    async def _obey(self) -> None:
        # Taken before the store is asked: what is refused later may be killed by an order that is not in the answer.
        refused, self._keeper.refused = self._keeper.refused, []
        try:
            orders = await self._threads.call(self._store.triggers.orders, self.owner)
        except BaseException:
            self._keeper.refused += refused
            raise
        self._keeper.obey(orders, refused)

    async def _hand_in(self) -> None:
        keeper, triggers = self._keeper, self._store.triggers
        if keeper.to_forget:
            ids, keeper.to_forget = keeper.to_forget, []
            await self._or_keep(keeper.to_forget, ids, triggers.forget)
        if keeper.to_release:
            ids, keeper.to_release = keeper.to_release, []
            await self._or_keep(keeper.to_release, ids, triggers.release)

    async def _or_keep(self, kept: list[int], ids: list[int], verb: Callable[[str, Sequence[int]], object]) -> None:
        try:
            await self._threads.call(verb, self.owner, ids)
        except BaseException:
            kept += ids
            raise

    async def _look_around(self) -> None:
        """Who else is at work, and who no longer is."""
        # Judged at the moment of our own renewal: whoever is late then is later than we are.
        now, is_thorough = self._beat_at, self._beats % _THOROUGH_EVERY == 1
        if self._may_take_over:
            await self._threads.call(self._store.triggers.take_over, now, thorough=is_thorough)
        await self._threads.call(self._store.watchers.match)
        self._keeper.restart_changed()
        known = await self._see_peers()
        if is_thorough:
            await self._look_for_unserved(known)
        if self._peers and self._keeper.hosts.trouble is not None:
            self._keeper.hand_over_waiting()
        if not self._keeper.hosts.count:
            self._news.stop()

    async def _see_peers(self) -> list[Peer]:
        """All other triggerers at work; those that can run what this one can share its load."""
        leases = [one for one in await self._threads.call(self._store.leases.all) if one.kind == "triggerer"]
        others = [_peer(one.detail) for one in leases if one.owner != self.owner and one.is_live(self._beat_at)]
        known = [peer for peer in others if peer is not None]
        self._peers = [peer for peer in known if peer.capacity and peer.can_replace(self._office.queues)]
        return known

    async def _look_for_unserved(self, others: Iterable[Peer]) -> None:
        served = set(self._office.queues or ()).union(*(peer.queues or () for peer in others))
        if EVERY_QUEUE in served:
            return
        unserved = sorted(set(await self._threads.call(self._store.triggers.queues)) - served)
        if unserved and unserved != self._unserved:
            log.warning("Triggers wait in queues that no triggerer serves: %s", ", ".join(unserved))
        self._unserved = unserved

    async def _claim(self, *, is_beat: bool) -> None:
        most = min(await self._room(is_beat=is_beat), _BATCH)
        if self._is_over:
            return
        claimed, unusable = await self._threads.call(self._claim_now, most)
        for trigger, why in unusable:
            self._fail_unstarted(trigger, why)
        if claimed:
            self._news.start()
            self._keeper.begin(claimed)
        if len(claimed) + len(unusable) == most > 0:
            # There may be more; whoever was killed meanwhile comes first.
            self._wake.set()

    def _fail_unstarted(self, trigger: Trigger, why: str) -> None:
        self._office.desk.logs.note(trigger, f"The trigger cannot be run: {why}", "error")
        if trigger.state is TriggerState.KILLING:
            self._keeper.to_forget.append(trigger.id)
            self._wake.set()
            return
        failure = Failure(error=FailureReason.FAILURE, traceback=[why])
        firing = Firing(id=trigger.id, epoch=trigger.epoch, what=failure)
        if trigger.watch is not None:
            firing = self._try_again_later(trigger.watch, firing)
        self._office.desk.ends.add(self.owner, firing)

    def _try_again_later(self, watch: Watch, firing: Firing) -> Firing:
        """It is given back when its pause is over: whoever takes it then may be able to run it."""
        pause = pause_after_failure(watch.attempts + 1, random.random(), self._office.desk.watching.longest)

        def give_back() -> None:
            self._keeper.to_release.append(firing.id)
            self._wake.set()

        asyncio.get_running_loop().call_later(pause, give_back)
        again_at = self._office.clock() + timedelta(seconds=pause)
        return msgspec.structs.replace(firing, is_watch=True, again_at=again_at)

    def _claim_now(self, most: int) -> tuple[list[Held], list[tuple[Trigger, str]]]:
        """What was claimed, and what no process can be told, and why. Called on a thread."""
        now, services = self._office.clock(), self._office.desk.services
        held: list[Held] = []
        unusable: list[tuple[Trigger, str]] = []
        triggers, queues = self._store.triggers, self._office.queues
        if most > 0:
            found = triggers.claim(self.owner, most=most, queues=queues, now=now)
        else:
            # A task that a person ended is not kept waiting for its `on_kill` because others fill every place.
            found = triggers.claim_owed(self.owner, most=_BATCH, queues=queues, now=now)
        for one in found:
            if one.unreadable is not None:
                unusable.append((one, one.unreadable))
                continue
            try:
                held.append(Held(one, startup=services.startup(one.id, now) if one.renders else None))
            except (TypeError, ValueError, OverflowError) as error:
                unusable.append((one, f"its arguments cannot be sent to the process that runs it ({error})"))
        return held, unusable

    async def _room(self, *, is_beat: bool) -> int:
        """How many more may be claimed now."""
        mine, capacity = self._keeper.count, self._office.capacity
        if mine >= capacity or self._keeper.is_swamped or self._keeper.hosts.trouble is not None:
            return 0
        if not self._peers and not is_beat:
            return capacity - mine
        load = await self._threads.call(self._store.triggers.load, self._office.queues)
        if is_beat:
            # Those who are entitled to them had a whole beat's time.
            self._left_over = self._left_over + 1 if is_left_over(load, mine, self._peers) else 0
            if load <= mine:
                return 0
        return to_claim(load, mine, capacity, self._peers, left_over=self._left_over > 1)

    async def _rebalance(self) -> None:
        if not self._peers or self._left_over:
            self._surplus = 0
            return
        load = await self._threads.call(self._store.triggers.load, self._office.queues)
        count = to_release(load, self._keeper.count, self._office.capacity, self._peers)
        self._surplus = self._surplus + 1 if count else 0
        if self._surplus >= _SURPLUS_BEATS:
            self._keeper.hand_over(count)

    def _pause(self, trouble: str) -> None:
        self._trouble = trouble
        # A claim may have been stored although its answer was lost.
        self._is_unsure = True
        asyncio.get_running_loop().call_later(_PAUSE_AFTER_ERROR, self._wake.set)


def _peer(detail: dict[str, Any]) -> Peer | None:
    """Another triggerer by what its lease says. None: it has not said anything yet."""
    if "capacity" not in detail:
        return None
    queues = detail.get("queues")
    return Peer(
        capacity=int(detail["capacity"]),
        running=int(detail.get("running", 0)),
        queues=None if queues is None else frozenset(queues),
    )
