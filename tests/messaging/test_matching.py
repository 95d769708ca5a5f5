"""Which messages are wanted, by fields and by functions."""

from typing import Any

import pytest

from stannel.messaging.matching import applied, matches, path_of
from stannel.messaging.message import Message

ORDER = Message(
    None,
    {"key": "k1", "headers": {"type": "paid"}},
    value={"id": 7, "status": "paid", "ok": True, "nothing": None, "customer": {"country": "DE"}},
)


@pytest.mark.parametrize(
    ("where", "fits"),
    [
        ({}, True),
        ({"status": "paid"}, True),
        ({"status": "open"}, False),
        ({"status": "paid", "id": 7}, True),
        ({"status": "paid", "id": 8}, False),
        ({"status": ["open", "paid"]}, True),
        ({"status": []}, False),
        ({"customer.country": "DE"}, True),
        ({"customer.city": "Bonn"}, False),
        ({"status.further": "x"}, False),
        ({"nothing": None}, True),
        ({"missing": None}, True),
        ({"status": None}, False),
        ({"ok": True}, True),
        ({"ok": 1}, True),
        ({"id": True}, False),
        ({"@key": "k1"}, True),
        ({"@headers.type": "paid"}, True),
        ({"@headers.type": "open"}, False),
        ({"key": "k1"}, False),
    ],
)
def test_a_message_matches_when_every_named_field_does(where: dict[str, Any], fits: bool) -> None:
    assert matches(ORDER, where) is fits


@pytest.mark.parametrize("value", [None, 7, "text", ["status"]])
def test_a_message_without_fields_matches_none(value: Any) -> None:
    assert not matches(Message(None, {}, value=value), {"status": "paid"})


def wants_big(message: dict[str, Any], *, least: int = 5) -> bool:
    return bool(message["value"]["id"] >= least)


async def made_later(message: dict[str, Any]) -> dict[str, Any]:
    return {"order": message["value"]["id"]}


class Holder:
    @staticmethod
    def nothing(message: dict[str, Any]) -> None:
        return None


async def test_a_function_may_choose_and_may_make_another_payload() -> None:
    here = __name__
    assert await applied(f"{here}.wants_big", ORDER, {}) == ORDER.payload()
    assert await applied(f"{here}.wants_big", ORDER, {"least": 8}) is None
    assert await applied(f"{here}.made_later", ORDER, {}) == {"order": 7}
    assert await applied(f"{here}.Holder.nothing", ORDER, {}) is None


def test_a_function_is_named_by_its_path() -> None:
    assert path_of(wants_big) == f"{__name__}.wants_big"
    assert path_of("my.module.function") == "my.module.function"
    with pytest.raises(ValueError, match="cannot be found by its path"):
        path_of(lambda message: True)
