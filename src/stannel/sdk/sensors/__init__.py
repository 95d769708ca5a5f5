"""The sensors that come with the SDK."""

from stannel.sdk.sensors.base import BaseSensorOperator, PokeReturnValue, poke_mode_only
from stannel.sdk.sensors.bash import BashSensor
from stannel.sdk.sensors.external_task import ExternalTaskMarker, ExternalTaskSensor
from stannel.sdk.sensors.filesystem import FileSensor
from stannel.sdk.sensors.http import HttpSensor
from stannel.sdk.sensors.python import PythonSensor
from stannel.sdk.sensors.temporal import (
    DateTimeSensor,
    DateTimeSensorAsync,
    DayOfWeekSensor,
    TimeDeltaSensor,
    TimeDeltaSensorAsync,
    TimeSensor,
    TimeSensorAsync,
    WaitSensor,
    WeekDay,
)

__all__ = [
    "BaseSensorOperator",
    "BashSensor",
    "DateTimeSensor",
    "DateTimeSensorAsync",
    "DayOfWeekSensor",
    "ExternalTaskMarker",
    "ExternalTaskSensor",
    "FileSensor",
    "HttpSensor",
    "PokeReturnValue",
    "PythonSensor",
    "TimeDeltaSensor",
    "TimeDeltaSensorAsync",
    "TimeSensor",
    "TimeSensorAsync",
    "WaitSensor",
    "WeekDay",
    "poke_mode_only",
]
