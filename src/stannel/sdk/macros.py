"""Functions for templates: `{{ macros.ds_add(ds, 7) }}`."""

import importlib
import json
import time
import uuid
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import random

__all__ = ["datetime", "ds_add", "ds_format", "json", "random", "time", "timedelta", "uuid"]


def __getattr__(name: str) -> Any:
    if name == "random":
        # Loaded on first use: every process that holds the module must seed it again after its fork.
        return importlib.import_module("random").random
    raise AttributeError(f"macros has no {name!r}")


def ds_add(ds: str, days: int) -> str:
    """The day that lies `days` after (or before, if negative) a `YYYY-MM-DD` day."""
    return (datetime.fromisoformat(ds) + timedelta(days=days)).strftime("%Y-%m-%d")


def ds_format(ds: str, input_format: str, output_format: str) -> str:
    """A date text in another format."""
    return datetime.strptime(str(ds), input_format).strftime(output_format)  # noqa: DTZ007
