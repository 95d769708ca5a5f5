"""The life of one trigger: made, run until it fires, cleaned up, gone. Whatever it does wrong stays with it."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from stannel.model.trigger import CancelReason, FailureReason
from stannel.protocol.triggering import Failed, Finished, Fired, HostSetup, Stuck, TriggerStart
from stannel.sdk import serde
from stannel.sdk.assets.definition import Asset
from stannel.sdk.state_store_assets import AssetStateStores
from stannel.triggerer.host import outcome
from stannel.triggerer.host.calling import called, close, name_of_task, stream_of
from stannel.triggerer.host.imports import Imports
from stannel.triggerer.host.loglines import Output
from stannel.triggerer.host.rendering import render
from stannel.triggerer.host.scope import AnyTask, Owner, begin
from stannel.triggerer.host.streams import HostStreams, Parting, Subscription
from stannel.triggerer.host.wire import Wire
from stannel.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent
from stannel.triggers.loading import plain_arguments

_GOES_ON = (CancelReason.MOVED, CancelReason.SHUTDOWN, CancelReason.RESTARTED)


class Phase(IntEnum):
    """How far a life has come; it only ever moves on."""

    NEW = 0
    MAKING = 1
    RUN = 2
    END = 3
    GONE = 4


@dataclass(frozen=True, slots=True)
class Around:
    """What every trigger of the host shares."""

    loop: asyncio.AbstractEventLoop
    wire: Wire
    imports: Imports
    output: Output
    streams: HostStreams
    setup: HostSetup
    on_gone: Callable[["Life"], None]


class Life(Owner):
    """One trigger. `reason` says why it is stopped, or that it fired; the first reason holds."""

    __slots__ = (
        "_around",
        "_events",
        "_has_failed",
        "_has_killed",
        "_is_cancelled",
        "_late",
        "_phase",
        "_shared",
        "_task",
        "_timer",
        "_trigger",
        "epoch",
        "is_stuck",
        "reason",
        "waiting",
    )

    def __init__(self, around: Around, start: TriggerStart) -> None:
        super().__init__(start.id)
        self._around, self.epoch = around, start.epoch
        self.waiting = None if start.waiter is None else outcome.task_of(start.waiter)
        self.reason = CancelReason.KILLED if start.only_kill else None
        self._phase = Phase.NEW
        self._events = 0
        self._has_failed = self._has_killed = self._is_cancelled = self.is_stuck = False
        self._trigger: BaseTrigger | None = None
        self._shared: Subscription | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._late: AnyTask | None = None
        self._task: AnyTask | None = begin(around.loop, self, lambda: self._live(start))

    @property
    def is_killing(self) -> bool:
        """A person ended the wait, and what that asks for is not over yet."""
        return self.reason is CancelReason.KILLED and self._phase < Phase.GONE and not self.is_stuck

    def cancel(self, reason: CancelReason) -> None:
        """Stop the trigger for this reason. Said again, or to one that has fired, it changes nothing."""
        if self.reason is not None or self._phase >= Phase.END:
            return
        self.reason = reason
        self._say("info", outcome.CANCEL_TEXTS[reason])
        # Before it runs there is nothing to interrupt: it looks at the reason when it has been made.
        if self._phase is Phase.RUN:
            self._interrupt()

    # --- running ---------------------------------------------------------------------------------------------------

    async def _live(self, start: TriggerStart) -> None:
        """Everything, in order. This frame stays as long as the trigger waits, so it keeps nothing it does not need."""
        try:
            trigger = self._trigger = await self._made(start)
            del start
            if trigger is not None and self.reason is None:
                self._phase = Phase.RUN
                try:
                    stream = await self._events_of(trigger)
                    async for event in stream:
                        if self._takes_last(event):
                            self._give_grace()
                            await close(stream)
                            break
                        await asyncio.sleep(0)
                    self._part(is_broken=self._has_failed)
                    self._returned()
                except asyncio.CancelledError as error:
                    self._part(is_broken=not self._is_cancelled)
                    self._was_cancelled(error)
                except BaseException as error:  # noqa: BLE001 - whatever a trigger raises is its own
                    self._part(is_broken=self.reason in (None, CancelReason.FIRED))
                    self._raised(error)
            await self._end()
        finally:
            self._leave()

    async def _made(self, start: TriggerStart) -> BaseTrigger | None:
        self._phase = Phase.MAKING
        # A trigger that was taken back before its first step was never run here.
        if self.reason is not None and self.reason is not CancelReason.KILLED:
            return None
        try:
            kind = await self._around.imports.find(start.classpath)
        except BaseException as error:  # noqa: BLE001 - an import runs any code, and may end in any way
            self._fail("Trigger failed to load code", error)
            return None
        try:
            arguments = plain_arguments(serde.decode(start.kwargs))
            trigger = kind(**arguments)
            self._introduce(trigger, start)
            if start.startup is not None:
                # Templates may ask the engine, and the first one loads Jinja2: neither shall stop the loop.
                await asyncio.to_thread(render, trigger, arguments, start.startup)
        except BaseException as error:  # noqa: BLE001 - and so does a constructor
            self._fail("Trigger failed to inflate", error)
            return None
        return trigger

    async def _events_of(self, trigger: BaseTrigger) -> AsyncIterator[TriggerEvent]:
        self._shared = await self._around.streams.join(self.id, trigger)
        return stream_of(trigger) if self._shared is None else self._shared.events

    def _part(self, *, is_broken: bool) -> None:
        shared, self._shared = self._shared, None
        if shared is None:
            return
        if is_broken:
            shared.leave(Parting.BROKEN)
        elif self.reason in (None, CancelReason.FIRED):
            shared.leave(Parting.DONE)
        else:
            shared.leave(Parting.MOVED if self.reason in _GOES_ON else Parting.STOPPED)

    def _introduce(self, trigger: BaseTrigger, start: TriggerStart) -> None:
        trigger.trigger_id = self.id
        if start.timeout_after is not None:
            trigger.timeout_after = start.timeout_after
        if self.waiting is not None:
            trigger.task_instance = self.waiting
        if start.assets and isinstance(trigger, BaseEventTrigger):
            trigger.asset_state_store = AssetStateStores([Asset(name, uri) for name, uri in start.assets], ())
        if self.reason is None:
            self._say("info", f"trigger {self._name} starting")

    def _takes_last(self, given: Any) -> bool:
        """Send the event. True: it is the last one that is wanted."""
        if self.reason is not None:
            return True
        try:
            event = outcome.event_of(given)
            number, position = (None, None) if self._shared is None else self._shared.bind()
            self._around.wire.report(Fired(self.id, self.epoch, event, number, position))
        except outcome.NotAnEvent as error:
            self._fail("Trigger yielded something that is no event", error)
            return True
        except Exception as error:  # noqa: BLE001 - an object that is being encoded may raise anything
            self._fail(
                f"Trigger {self._name} returned non-serializable result. Cancelling trigger.",
                error,
                outcome.unstorable(error),
            )
            return True
        self._events += 1
        if self._shared is None:
            self._say("info", f"Trigger fired event: {outcome.shown(given)}")
        if self.waiting is None:
            return False
        self.reason = CancelReason.FIRED
        return True

    def _returned(self) -> None:
        if self._events or self._has_failed or self.reason is not None:
            return
        self._say("error", outcome.RETURNED_NOTHING)
        self._report_failure(FailureReason.FAILURE, None)

    def _was_cancelled(self, error: BaseException) -> None:
        if not self._is_cancelled and self.reason is None:
            self._raised(error)

    def _raised(self, error: BaseException) -> None:
        text = f"Trigger {self._name} exited with error {outcome.described(error)}"
        # A task had what it waited for; a watcher should have gone on.
        is_over = self._events > 0 and self.waiting is not None
        if is_over or self._has_failed or self.reason is not None:
            self._say("error", text, exception="\n".join(outcome.traceback_lines(error)))
        else:
            self._fail(text, error)

    # --- stopping --------------------------------------------------------------------------------------------------

    def _interrupt(self) -> None:
        assert self._task is not None
        self._is_cancelled = True
        self._task.cancel()
        self._give_grace()

    def _give_grace(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._around.loop.call_later(self._around.setup.cancel_grace, self._overdue)

    def _overdue(self) -> None:
        """The time to stop is over."""
        if self._phase is not Phase.RUN:
            return
        if not self._is_cancelled:
            self._interrupt()
            return
        self._stick("The trigger ignores cancellation: its run() goes on although it was told to stop")
        if self.reason is CancelReason.KILLED:
            # The person who killed the task wants the work behind it stopped, however the trigger behaves.
            self._late = self._around.loop.create_task(self._kill())

    async def _end(self) -> None:
        self._phase = Phase.END
        if self._timer is not None:
            self._timer.cancel()
        # What comes now may use time limits of its own, which must not find the task being cancelled.
        if self._is_cancelled and self._task is not None:
            self._task.uncancel()
        if self._trigger is not None:
            if self.reason is CancelReason.KILLED:
                await self._kill()
            await self._call("cleanup", self._trigger.cleanup)
        if self.tasks:
            await self._sweep()

    async def _kill(self) -> None:
        if self._has_killed or self._trigger is None:
            return
        self._has_killed = True
        await self._call("on_kill", self._trigger.on_kill)

    async def _call(self, name: str, hook: Callable[[], Any]) -> None:
        """Run a hook in a task of its own, which nothing but its time limit stops."""
        if getattr(hook, "__func__", None) is getattr(BaseTrigger, name):
            return
        setup = self._around.setup
        task = begin(self._around.loop, self, lambda: called(hook))
        await asyncio.wait({task}, timeout=setup.on_kill_timeout)
        if not task.done():
            self._say("warning", f"{name}() timed out after {setup.on_kill_timeout:g} seconds")
            task.cancel()
            await asyncio.wait({task}, timeout=setup.cancel_grace)
        if not task.done():
            self._stick(f"The trigger ignores cancellation: its {name}() goes on although its time is over")
        elif not task.cancelled() and (error := task.exception()) is not None:
            trace = "\n".join(outcome.traceback_lines(error))
            self._say("warning", f"{name}() raised {outcome.described(error)}", exception=trace)

    async def _sweep(self) -> None:
        """Cancel the tasks that the trigger began and forgot."""
        # One that was cancelled at the last moment gets the turn it needs to end.
        for _ in range(2):
            await asyncio.sleep(0)
        left = [task for task in self.tasks or () if not task.done()]
        if not left:
            return
        names = ", ".join(sorted({name_of_task(task) for task in itertools.islice(left, 20)}))
        self._say("warning", f"The trigger left {len(left)} of its tasks behind, which are cancelled now: {names}")
        for task in left:
            task.cancel()
        _, stubborn = await asyncio.wait(left, timeout=self._around.setup.cancel_grace)
        if stubborn:
            self._stick(f"The trigger ignores cancellation: {len(stubborn)} of the tasks it left behind go on")

    def _leave(self) -> None:
        if self._phase is Phase.GONE:
            return
        self._phase = Phase.GONE
        if self._timer is not None:
            self._timer.cancel()
        self._around.output.end(self.id)
        self._say("debug", f"trigger {self._name} completed")
        self._around.wire.report(Finished(self.id, self.epoch))
        self._trigger = self._timer = self._task = None
        self._around.on_gone(self)

    # --- saying ----------------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return outcome.name_of(self.id, self.waiting)

    def _say(self, level: str, text: str, **fields: Any) -> None:
        self._around.output.say(self.id, level, text, **fields)

    def _fail(self, text: str, error: BaseException, told: str = FailureReason.FAILURE) -> None:
        lines = outcome.traceback_lines(error)
        self._say("error", text, exception="\n".join(lines))
        self._report_failure(told, lines)

    def _report_failure(self, told: str, lines: list[str] | None) -> None:
        self._has_failed = True
        self._around.wire.report(Failed(self.id, self.epoch, told, lines))

    def _stick(self, text: str) -> None:
        if self.is_stuck:
            return
        self.is_stuck = True
        self._say("error", f"{text}. It stays behind in a process that gets no new triggers.")
        self._around.wire.report(Stuck(self.id))
