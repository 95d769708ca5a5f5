"""Variables."""

import pytest
from support.memory_channel import MemoryChannel

from stannel.protocol.replies import ErrorResponse
from stannel.protocol.requests import GetVariable, MaskSecret
from stannel.protocol.schema import ErrorCode
from stannel.sdk import Variable
from stannel.sdk.comms import use_channel
from stannel.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError
from stannel.sdk.log import mask_secret


def test_a_variable_is_stored_read_listed_and_deleted() -> None:
    with use_channel(MemoryChannel()):
        Variable.set("a", 1)
        Variable.set("b", {"x": [1]}, serialize_json=True)
        assert Variable.get("a") == "1"
        assert Variable.get("b", deserialize_json=True) == {"x": [1]}
        assert Variable.keys() == ["a", "b"]
        assert Variable.keys(prefix="b") == ["b"]
        Variable.delete("a")
        assert Variable.get("a", default="gone") == "gone"
        assert Variable.get("a", default_var=None) is None


def test_more_keys_than_a_page_are_all_listed() -> None:
    channel = MemoryChannel()
    channel.variables = {f"k{number:05}": "" for number in range(2500)}
    with use_channel(channel):
        assert Variable.keys() == sorted(channel.variables)


@pytest.mark.parametrize("kind", [KeyError, AirflowRuntimeError, AirflowNotFoundException])
def test_a_missing_variable_is_the_error_authors_catch(kind: type[Exception]) -> None:
    with use_channel(MemoryChannel()), pytest.raises(kind) as caught:
        Variable.get("nope")
    assert str(caught.value) == "There is no variable 'nope'. Set it with: stannel variables set nope VALUE"


def test_the_environment_comes_first_and_works_without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANNEL_VAR_CITY", '{"a": 1}')
    assert Variable.get("city", deserialize_json=True) == {"a": 1}
    channel = MemoryChannel()
    with use_channel(channel):
        assert Variable.get("CITY") == '{"a": 1}'
    assert channel.sent(GetVariable) == []


def test_without_an_engine_the_error_says_where_variables_can_be_read() -> None:
    with pytest.raises(KeyError) as caught:
        Variable.get("nope")
    assert "STANNEL_VAR_NOPE" in str(caught.value)
    assert "only while a task runs" in str(caught.value)
    with pytest.raises(AirflowRuntimeError, match="no task is running"):
        Variable.set("a", "b")


def test_a_refusal_is_not_taken_for_a_missing_variable() -> None:
    class Refusing(MemoryChannel):
        def request(self, body: object) -> ErrorResponse:
            return ErrorResponse(ErrorCode.PERMISSION_DENIED, {"message": "not yours"})

    with use_channel(Refusing()), pytest.raises(AirflowRuntimeError, match="not yours") as caught:
        Variable.get("a", default="fallback")
    assert caught.value.error == "PERMISSION_DENIED"


def test_a_secret_is_announced_and_nothing_happens_without_an_engine() -> None:
    channel = MemoryChannel()
    with use_channel(channel):
        mask_secret("hush", "token")
        mask_secret("")
    mask_secret("nobody listens")
    (sent,) = channel.asked
    assert isinstance(sent, MaskSecret)
    assert (sent.value, sent.name) == ("hush", "token")
