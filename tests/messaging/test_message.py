"""What a message says, whatever its bytes are."""

import pytest

from stannel.messaging.message import Message, decoded, text_of


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"id": 7, "tags": ["a"]}', {"id": 7, "tags": ["a"]}),
        (b"12", 12),
        (b"plain text", "plain text"),
        ("Grüße".encode(), "Grüße"),
        (b"{broken", "{broken"),
        (b"", ""),
        (b"\xff\xfe", "//4="),
        (b'"\xff"', "Iv8i"),
        (None, None),
    ],
)
def test_content_is_json_or_text_or_base64(data: bytes | None, value: object) -> None:
    assert decoded(data) == value


def test_a_message_is_decoded_once_for_all_who_look() -> None:
    message = Message(b'{"id": 7}', {"topic": "orders"})
    assert message.value is message.value
    assert message.payload() == {"value": {"id": 7}, "topic": "orders"}


def test_a_payload_can_be_changed_without_changing_the_message() -> None:
    message = Message(b"1", {"topic": "orders"})
    message.payload()["topic"] = "changed"
    assert message.payload()["topic"] == "orders"


def test_a_content_that_is_given_needs_no_bytes() -> None:
    assert Message(None, {}, value=None).value is None
    assert Message(None, {}, value={"a": 1}).value == {"a": 1}


@pytest.mark.parametrize(("data", "text"), [(b"key", "key"), ("key", "key"), (None, None), (b"\xff", "/w==")])
def test_a_key_is_text(data: bytes | str | None, text: str | None) -> None:
    assert text_of(data) == text
