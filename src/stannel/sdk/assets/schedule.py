"""Schedules made of assets: the condition, and the policy by which waiting events become runs."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from datetime import timedelta, tzinfo
from typing import Any

import msgspec

from stannel.model.asset import AllOf, Condition, Consumption, Grouping
from stannel.model.schedule import AnySchedule, OnAssets, TimeSchedule
from stannel.sdk.timetables import Timetable, timetable_of


class ScheduledOnAssets(ABC):
    """Whatever events can be consumed from. Each method gives a schedule that says how they become runs."""

    @abstractmethod
    def condition(self) -> Condition:
        """What has to be updated before a run starts."""

    @abstractmethod
    def parts(self) -> Iterator[Any]:
        """The assets, references and aliases in it."""

    def _policy(self) -> Consumption:
        return Consumption()

    def _schedule(self, policy: Consumption) -> "AssetSchedule":
        return AssetSchedule(self, consumption=policy)

    def _changed(self, **changes: Any) -> "AssetSchedule":
        return self._schedule(msgspec.structs.replace(self._policy(), **changes))

    def per_event(self) -> "AssetSchedule":
        """A run for every event; for several assets that are all needed, as soon as each of them has one."""
        return self._changed(grouping=Grouping.EACH, most=None, seconds=0.0, longest=None)

    def batch(self, *, max: int | None = None, wait: timedelta | float | None = None) -> "AssetSchedule":  # noqa: A002
        """A run for the events that arrive within `wait` of the first, or as soon as there are `max`.

        Without `wait`, a run takes what is there, `max` events at most.
        """
        most = None if max is None else _whole("batch(max=)", max)
        if wait is None:
            return self._changed(grouping=Grouping.QUEUED, most=most, seconds=0.0, longest=None)
        seconds = _seconds("batch(wait=)", wait)
        return self._changed(grouping=Grouping.WINDOW, most=most, seconds=seconds, longest=None)

    def debounce(self, quiet: timedelta | float, *, longest: timedelta | float | None = None) -> "AssetSchedule":
        """A run once no event has come for `quiet`; at the latest `longest` after the first."""
        limit = None if longest is None else _seconds("debounce(longest=)", longest)
        seconds = _seconds("debounce()", quiet)
        return self._changed(grouping=Grouping.BURST, most=None, seconds=seconds, longest=limit)

    def latest(self) -> "AssetSchedule":
        """Only the newest event of each asset counts; older ones that still wait are superseded by it."""
        return self._changed(latest=True)

    def per_key(self, *, ordered: bool = True) -> "AssetSchedule":
        """Runs for each partition key on its own; ordered: never two runs of one key at the same time."""
        policy = self._policy()
        grouping = Grouping.EACH if policy.grouping is Grouping.QUEUED and policy.most is None else policy.grouping
        return self._changed(grouping=grouping, by_key=True, ordered=bool(ordered))

    def rate_limit(self, runs: int, *, per: timedelta | float) -> "AssetSchedule":
        """No more than so many runs in any stretch of `per`; events wait meanwhile."""
        return self._changed(rate_runs=_whole("rate_limit()", runs), rate_seconds=_seconds("rate_limit(per=)", per))


class AssetSchedule(Timetable, ScheduledOnAssets):
    """A run when assets were updated. `consumption` None: all events that wait make up one run, as in Airflow."""

    def __init__(self, assets: Any, *, consumption: Consumption | None = None) -> None:
        self.assets = _one(assets)
        self.consumption = consumption

    def condition(self) -> Condition:
        return self.assets.condition()

    def parts(self) -> Iterator[Any]:
        return self.assets.parts()

    def _policy(self) -> Consumption:
        return self.consumption or Consumption()

    def _schedule(self, policy: Consumption) -> "AssetSchedule":
        return AssetSchedule(self.assets, consumption=policy)

    def compiled(self) -> AnySchedule:
        return OnAssets(self.condition(), self.consumption)

    @property
    def asset_condition(self) -> ScheduledOnAssets:
        return self.assets


class AssetOrTimeSchedule(AssetSchedule):
    """A run when assets were updated, and besides at the moments of a timetable."""

    def __init__(self, *, timetable: Any, assets: Any) -> None:
        given = schedule_of(assets, None)
        if not isinstance(given, AssetSchedule) or isinstance(given, AssetOrTimeSchedule):
            raise ValueError(f"AssetOrTimeSchedule needs assets, not {assets!r}")
        super().__init__(given.assets, consumption=given.consumption)
        self.timetable = timetable_of(timetable)
        if isinstance(self.timetable, AssetSchedule):
            raise ValueError("the timetable of AssetOrTimeSchedule is about time; give assets as assets=")

    def _schedule(self, policy: Consumption) -> AssetSchedule:
        changed = type(self)(timetable=self.timetable, assets=self.assets)
        changed.consumption = policy
        return changed

    def compiled(self) -> AnySchedule:
        time = self.timetable.compiled()
        assert not isinstance(time, OnAssets)
        return OnAssets(self.condition(), self.consumption, time)


class _AllOfThem(ScheduledOnAssets):
    """A plain collection of assets in a schedule."""

    def __init__(self, members: Collection[ScheduledOnAssets]) -> None:
        self._members = list(members)

    def condition(self) -> Condition:
        return AllOf(tuple(one.condition() for one in self._members))

    def parts(self) -> Iterator[Any]:
        for one in self._members:
            yield from one.parts()


def schedule_of(schedule: Any, zone: tzinfo | None) -> Timetable:
    """The timetable an author means by the value of `schedule`: about assets, or about time."""
    if isinstance(schedule, Timetable):
        return schedule
    if isinstance(schedule, ScheduledOnAssets):
        return AssetSchedule(schedule)
    if isinstance(schedule, Collection) and not isinstance(schedule, str | bytes):
        return AssetSchedule(_one(schedule))
    return timetable_of(schedule, zone)


def time_part(schedule: AnySchedule) -> TimeSchedule:
    """What a schedule says about time."""
    return schedule.time if isinstance(schedule, OnAssets) else schedule


def _one(assets: Any) -> ScheduledOnAssets:
    if isinstance(assets, ScheduledOnAssets):
        return assets
    members = list(assets) if isinstance(assets, Collection) and not isinstance(assets, str) else [assets]
    if not members or not all(isinstance(one, ScheduledOnAssets) and not isinstance(one, Timetable) for one in members):
        raise ValueError(f"a schedule of several things must name assets only, not {assets!r}")
    return _AllOfThem(members)


def _whole(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{what} takes a whole number of at least 1, not {value!r}")
    return value


def _seconds(what: str, value: Any) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
        raise ValueError(f"{what} takes a timedelta or a number of seconds, more than 0, not {value!r}")
    return float(seconds)
