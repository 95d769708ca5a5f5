"""The programs of one machine stop together, whatever the store says to that."""

from pathlib import Path

import pytest

from stannel.cli.engine import Engine
from stannel.errors import StoreUnavailable
from stannel.settings import load_settings
from stannel.store.store import Store


class NoWorkers:
    """An executor that brings up nothing."""

    running = 0

    def __init__(self) -> None:
        self.was_stopped = False

    def start(self) -> None:
        pass

    def watch(self, store: Store) -> None:
        pass

    def stop(self, *, patience: float) -> None:
        self.was_stopped = True

    def stop_now(self) -> None:
        pass


@pytest.mark.parametrize("error", [StoreUnavailable("sqlite:///x", "it is gone"), OSError("no descriptors")])
def test_everything_stops_although_the_store_cannot_pass_it_on(
    store: Store, home: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    executor = NoWorkers()
    engine = Engine(store, load_settings(home, {}), executor=executor, parse=False)
    engine.start()

    def fail(*_: str) -> None:
        raise error

    monkeypatch.setattr(store.database, "wake", fail)
    engine.stop(patience=1.0)
    assert executor.was_stopped
    assert not any(thread.is_alive() for thread in engine._threads)
