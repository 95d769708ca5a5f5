"""Request bodies are read liberally, and refused by name."""

import contextlib
from datetime import UTC, datetime, timedelta
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from stannel.protocol.decoding import Unreadable, decode_reply, decode_request
from stannel.protocol.replies import VariableResult
from stannel.protocol.requests import (
    AwaitInputTask,
    DeferTask,
    GetAssetEventByAsset,
    GetDRCount,
    GetXCom,
    Request,
    SetXCom,
    SkipDownstreamTasks,
    SucceedTask,
    TriggerDagRun,
)

XCOM = {"type": "SetXCom", "key": "k", "dag_id": "d", "run_id": "r", "task_id": "t"}
DEFER = {"type": "DeferTask", "classpath": "a.B", "next_method": "m"}


def body(value):
    return Raw(msgspec.msgpack.encode(value))


def refused(value):
    with pytest.raises(Unreadable) as error:
        decode_request(value if isinstance(value, Raw) else body(value))
    return error.value.detail


@pytest.mark.parametrize(
    ("sent", "moment"),
    [
        (datetime(2026, 8, 22, 13, 58, 1, 37000, tzinfo=UTC), datetime(2026, 8, 22, 13, 58, 1, 37000, tzinfo=UTC)),
        ("2026-08-22T13:58:01Z", datetime(2026, 8, 22, 13, 58, 1, tzinfo=UTC)),
        ("2026-08-22T13:58:01.5Z", datetime(2026, 8, 22, 13, 58, 1, 500000, tzinfo=UTC)),
        ("2026-08-22T15:58:01.123456+02:00", datetime(2026, 8, 22, 13, 58, 1, 123456, tzinfo=UTC)),
        ("2026-08-22T13:58:01.123456789Z", datetime(2026, 8, 22, 13, 58, 1, 123456, tzinfo=UTC)),
        ("2026-08-22T13:58:59.999999999Z", datetime(2026, 8, 22, 13, 58, 59, 999999, tzinfo=UTC)),
        ("2026-08-22T13:58Z", datetime(2026, 8, 22, 13, 58, tzinfo=UTC)),
    ],
)
def test_every_spelling_of_a_moment_is_the_same_moment(sent, moment):
    assert decode_request(body({"type": "SucceedTask", "end_date": sent})).end_date == moment


def test_moments_in_lists_and_nullable_places_are_read_too():
    counted = decode_request(body({"type": "GetDRCount", "dag_id": "d", "logical_dates": ["2026-08-22T13:58Z"]}))
    assert counted == GetDRCount(dag_id="d", logical_dates=[datetime(2026, 8, 22, 13, 58, tzinfo=UTC)])
    asked = decode_request(body({"type": "GetAssetEventByAsset", "name": None, "uri": "u", "after": None}))
    assert asked == GetAssetEventByAsset(name=None, uri="u")


@pytest.mark.parametrize("sent", ["2026-08-22T13:58:01", "2026-08-22", "soon", "", 1787407081, True, None, {}])
def test_a_moment_that_names_no_instant_is_refused_by_field(sent):
    detail = refused({"type": "SucceedTask", "end_date": sent})
    assert (detail["message_type"], detail["field"]) == ("SucceedTask", "end_date")


@pytest.mark.parametrize(
    ("sent", "length"),
    [
        ("PT5M", timedelta(minutes=5)),
        ("P1DT2H", timedelta(days=1, hours=2)),
        ("PT0.5S", timedelta(milliseconds=500)),
        (300, timedelta(minutes=5)),
        (0.25, timedelta(milliseconds=250)),
        (None, None),
    ],
)
def test_a_duration_is_iso_text_or_a_number_of_seconds(sent, length):
    assert decode_request(body(DEFER | {"trigger_timeout": sent})).trigger_timeout == length
    waiting = decode_request(body({"type": "AwaitInputTask", "next_method": "m", "timeout": sent}))
    assert waiting == AwaitInputTask(next_method="m", timeout=length)


@pytest.mark.parametrize("sent", ["five minutes", "P1Y", True, float("nan"), 1e300, []])
def test_a_duration_that_is_none_is_refused_by_field(sent):
    assert refused(DEFER | {"trigger_timeout": sent})["field"] == "trigger_timeout"


def test_a_duration_leaves_as_iso_text_and_a_moment_as_a_timestamp():
    sent = msgspec.msgpack.decode(
        msgspec.msgpack.encode(DeferTask(classpath="a.B", next_method="m", trigger_timeout=timedelta(0, 90)))
    )
    assert sent["trigger_timeout"] == "PT90S"
    moment = datetime(2026, 11, 15, 6, 52, 23, tzinfo=UTC)
    assert bytes.fromhex("d6ff6af956a7") in msgspec.msgpack.encode(SucceedTask(end_date=moment))


@pytest.mark.parametrize("kind", get_args(Request), ids=lambda kind: kind.__name__)
def test_every_request_misses_its_required_fields_by_name(kind):
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    if not required:
        assert type(decode_request(body({"type": kind.__name__}))) is kind
        return
    detail = refused({"type": kind.__name__})
    assert detail["message_type"] == kind.__name__
    assert detail["field"] in required
    assert f"`{detail['field']}`" in detail["message"]


@pytest.mark.parametrize(
    ("value", "message_type", "field"),
    [
        ({"type": "GetVariable", "key": 5}, "GetVariable", "key"),
        ({"type": "TaskState", "state": "exploded"}, "TaskState", "state"),
        (
            {"type": "SucceedTask", "end_date": "2026-01-01T00:00:00Z", "task_outlets": [{"name": "a"}]},
            "SucceedTask",
            "task_outlets[0].type",
        ),
        ({"type": "SkipDownstreamTasks", "tasks": ["a", ["b"]]}, "SkipDownstreamTasks", "tasks[1]"),
        ({"type": "TriggerDagRun", "dag_id": "d", "run_id": "r", "conf": {1: 2}}, "TriggerDagRun", "conf"),
        ({"type": "GetMoon"}, "GetMoon", "type"),
        ({"key": "k"}, None, "type"),
        ({"type": None}, None, "type"),
        (None, None, None),
        ([1, 2], None, None),
        ("GetVariable", None, None),
        ({1: 2}, None, None),
        ({}, None, "type"),
    ],
)
def test_what_is_wrong_is_named(value, message_type, field):
    detail = refused(value)
    assert (detail["message_type"], detail["field"]) == (message_type, field)
    assert detail["message"].endswith("; nothing was done")


def test_unknown_keys_are_ignored_at_every_level():
    sent = {
        "type": "SucceedTask",
        "end_date": "2026-01-01T00:00:00Z",
        "loop_decision": 1,
        "task_outlets": [{"type": "Asset", "x": 1}],
    }
    assert decode_request(body(sent)).task_outlets[0].type == "Asset"


def test_a_duplicate_key_counts_once_and_the_last_one_wins():
    raw = Raw(b"\x83\xa4type\xabGetVariable\xa3key\xa1a\xa3key\xa1b")
    assert decode_request(raw).key == "b"


def test_the_type_may_stand_anywhere_in_the_map():
    assert decode_request(
        body({"key": "k", "dag_id": "d", "run_id": "r", "task_id": "t", "type": "GetXCom"})
    ) == GetXCom(key="k", dag_id="d", run_id="r", task_id="t")


def test_a_skip_names_tasks_plainly_or_with_a_map_index():
    assert decode_request(body({"type": "SkipDownstreamTasks", "tasks": ["a", ["b", 2]]})) == SkipDownstreamTasks(
        ["a", ("b", 2)]
    )


def test_moments_inside_values_become_text():
    moment = datetime(2026, 11, 15, tzinfo=UTC)
    assert decode_request(body(XCOM | {"value": {"at": [moment]}})).value == {"at": ["2026-11-15T00:00:00Z"]}
    asked = {"type": "TriggerDagRun", "dag_id": "d", "run_id": "r", "conf": {"at": moment}, "logical_date": moment}
    assert decode_request(body(asked)) == TriggerDagRun(
        dag_id="d", run_id="r", conf={"at": "2026-11-15T00:00:00Z"}, logical_date=moment
    )


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\xc4\x02ab", "is bytes"),
        (b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", "is nan"),
        (b"\x81\x01\x02", "has a key of type int"),
        (b"\x81\x91\x01\x02", "has a key of type tuple"),
        (b"\x81\x81\x01\x02\x03", "hashable"),
        (b"\xa3\xed\xa0\x80", "not valid UTF-8"),
        (b"\xd4\x05\x00", "is of type Ext"),
        (b"\xc7\x0c\xff\x00\x00\x00\x00" + b"\x7f" * 8, "out of range"),
        (b"\x91" * 300 + b"\xc0", "is nested more than 200 levels deep"),
    ],
)
def test_a_value_that_json_cannot_keep_is_refused_by_field_and_reason(raw, reason):
    head = msgspec.msgpack.encode(XCOM)
    detail = refused(Raw(b"\x86" + head[1:] + b"\xa5value" + raw))
    assert (detail["message_type"], detail["field"]) == ("SetXCom", "value")
    assert reason in detail["message"]


def test_a_hundred_thousand_elements_are_no_problem():
    value = list(range(100_000))
    assert decode_request(body(XCOM | {"value": value})) == SetXCom(
        key="k", dag_id="d", run_id="r", task_id="t", value=value
    )


def test_a_refused_secret_is_not_repeated():
    assert "s3cret" not in str(refused({"type": "MaskSecret", "value": [b"s3cret", {b"s3cret": 1}]}))


def test_a_reply_nobody_knows_is_unreadable():
    assert decode_reply(body({"type": "VariableResult", "key": "k", "value": None})) == VariableResult("k", None)
    with pytest.raises(Unreadable, match="a reply cannot be read"):
        decode_reply(body({"type": "MoonResult"}))


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=5)
)
VALUES = st.recursive(
    SCALARS | st.datetimes(timezones=st.just(UTC)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = sorted({field.name for kind in get_args(Request) for field in msgspec.structs.fields(kind)})


@given(st.sampled_from(get_args(Request)), st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6))
def test_any_fields_make_a_request_that_can_be_stored_or_a_refusal(kind, fields):
    try:
        request = decode_request(body({"type": kind.__name__} | fields))
    except Unreadable:
        return
    assert type(request) is kind
    assert msgspec.json.decode(msgspec.json.encode(request))["type"] == kind.__name__


@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_a_refusal(noise):
    for decode in (decode_request, decode_reply):
        with contextlib.suppress(Unreadable):
            decode(Raw(noise))
