import pytest

from stannel.triggers.base import TriggerEvent
from stannel.triggers.testing import FailureTrigger, SuccessTrigger


async def test_one_fires_at_once_and_one_fails_at_once():
    assert [event async for event in SuccessTrigger().run()] == [TriggerEvent(True)]
    with pytest.raises(ValueError, match="on purpose"):
        [event async for event in FailureTrigger().run()]
