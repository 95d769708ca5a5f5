"""Both ends of the conversation, held against the golden frames and against noise."""

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stannel.model.run import RunType
from stannel.model.states import RunState
from stannel.protocol.data import BundleInfo, DagRun, LiteralArgBinding, TaskInstance, TIRunContext, XComArgBinding
from stannel.protocol.errors import (
    EmptyFrame,
    FrameTooLarge,
    GreetingRefused,
    MessageTooLarge,
    ProtocolBroken,
    UnknownSchema,
    Unsendable,
)
from stannel.protocol.frames import Frames, encode_frame
from stannel.protocol.replies import ErrorResponse, Reply, StartupDetails, VariableResult, XComResult
from stannel.protocol.requests import GetVariable, GetXCom, Request, SetXCom, SucceedTask
from stannel.protocol.schema import ErrorCode
from stannel.protocol.session import Answered, Malformed, Received, Reported, RuntimeSession, SupervisorSession

GOLDEN = json.loads((Path(__file__).parents[2] / "sdks" / "conformance" / "frames.json").read_text(encoding="utf-8"))
NOW = datetime(2026, 11, 15, 6, 52, 23, 37000, tzinfo=UTC)
ASK = GetVariable("k")

RUN = DagRun(
    dag_id="sales",
    run_id="manual__1",
    logical_date=NOW,
    data_interval_start=None,
    data_interval_end=None,
    run_after=NOW,
    start_date=NOW,
    end_date=None,
    run_type=RunType.MANUAL,
    state=RunState.RUNNING,
    conf={},
    consumed_asset_events=[],
    partition_key=None,
)
ARGUMENTS = [
    LiteralArgBinding(name="country", value="uk", value_schema={"type": "string"}),
    XComArgBinding(name="extracted", task_id="extract"),
]


def startup(**context):
    return StartupDetails(
        ti=TaskInstance(
            id="0198f2c4-7c1e-7a55-9a3e-1d2f3a4b5c6d",
            task_id="transform",
            dag_id="sales",
            run_id="manual__1",
            try_number=1,
            dag_version_id="0198f2c4-0000-7000-8000-000000000001",
            queue="java",
        ),
        dag_rel_path="pipelines/sales.py",
        bundle_info=BundleInfo(name="dags-folder"),
        start_date=NOW,
        ti_context=TIRunContext(dag_run=RUN, max_tries=2, should_retry=True, **context),
    )


def golden(*expectations):
    chosen = [frame for frame in GOLDEN if frame["expect"] in expectations]
    return pytest.mark.parametrize("case", chosen, ids=[frame["name"] for frame in chosen])


def wire(*parts):
    return encode_frame(msgspec.msgpack.encode(parts))


def said(frame):
    """A frame as any MessagePack reader sees it."""
    (payload,) = Frames().feed(frame)
    return msgspec.msgpack.decode(payload)


def heard(frame, **options):
    return list(SupervisorSession(**options).feed(frame))


def frame_of(case):
    return bytes.fromhex(case["frame"])


@golden("request")
def test_a_golden_request_is_received(case):
    assert heard(frame_of(case)) == [Received(case["id"], msgspec.convert(case["body"], Request))]


@golden("malformed")
def test_a_golden_malformed_request_is_refused_by_field_and_the_connection_stays_usable(case):
    session = SupervisorSession()
    bad, good = session.feed(frame_of(case) + wire(10, ASK))
    assert isinstance(bad, Malformed)
    assert bad.id == case["id"]
    assert bad.detail["field"] == case.get("field", bad.detail["field"])
    assert good == Received(10, ASK)
    answer = said(session.refuse(bad.id, ErrorCode.GENERIC_ERROR, bad.detail))
    assert answer == [case["id"], None, {"type": "ErrorResponse", "error": "GENERIC_ERROR", "detail": bad.detail}]


@golden("reported")
def test_a_golden_report_says_why_the_runtime_gave_up(case):
    assert heard(frame_of(case)) == [Reported(case["id"], case["error"], case["detail"])]


@golden("broken")
def test_a_golden_broken_frame_ends_the_conversation_for_ever(case):
    session = SupervisorSession()
    feed = session.feed(wire(1, ASK) + frame_of(case))
    assert next(feed) == Received(1, ASK)
    with pytest.raises(ProtocolBroken):
        next(feed)
    with pytest.raises(ProtocolBroken):
        list(session.feed(wire(2, ASK)))


@golden("reply")
def test_a_golden_reply_is_read(case):
    body = msgspec.convert(case["body"], Reply | None)
    assert list(RuntimeSession().feed(frame_of(case))) == [Answered(case["id"], body, None)]


@golden("error")
def test_a_golden_error_is_the_same_error_wherever_it_stands(case):
    error = ErrorResponse(ErrorCode(case["error"]), case["detail"])
    assert list(RuntimeSession().feed(frame_of(case))) == [Answered(case["id"], None, error)]


@golden("greeting")
def test_a_golden_greeting_is_read(case):
    assert RuntimeSession().read_greeting(frame_of(case)) == msgspec.convert(case["body"], StartupDetails)


def test_the_golden_frames_cover_every_expectation():
    kinds = {"request", "malformed", "reported", "broken", "reply", "error", "greeting"}
    assert {frame["expect"] for frame in GOLDEN} == kinds


def test_our_own_frames_are_the_golden_ones_byte_for_byte():
    by_name = {frame["name"]: frame_of(frame) for frame in GOLDEN}
    june, october = SupervisorSession(schema_version="2026-06-16"), SupervisorSession()
    assert RuntimeSession().request(ASK) == (0, by_name["a variable is asked for"])
    assert october.reply(0, VariableResult("k", "v")) == by_name["a variable is served"]
    assert october.reply(3) == by_name["an acknowledgement"]
    assert said(june.greet(startup(arg_bindings=ARGUMENTS))) == said(by_name["the greeting of schema 2026-06-16"])
    assert said(october.greet(startup(arg_bindings=ARGUMENTS))) == said(
        by_name["the greeting of schema 2026-10-30, with arguments"]
    )


def test_requests_are_heard_however_the_stream_was_cut():
    stream = wire(0, ASK) + wire(1, SucceedTask(end_date=NOW), None)
    for cut in range(len(stream)):
        session = SupervisorSession()
        events = [*session.feed(stream[:cut]), *session.feed(stream[cut:])]
        assert events == [Received(0, ASK), Received(1, SucceedTask(end_date=NOW))]


@pytest.mark.parametrize("request_id", [0, 7, 3, 2**31 - 1, -1, 2**63])
def test_any_id_is_echoed_and_none_is_given_a_meaning(request_id):
    session = SupervisorSession()
    events = list(session.feed(wire(request_id, ASK) * 2))
    assert [event.id for event in events] == [request_id] * 2
    assert said(session.reply(events[0].id)) == [request_id, None, None]


@pytest.mark.parametrize("third", [None, {"traceparent": "00-a-b-01"}, {1: 2}, "junk", 7, [b"x"]])
def test_the_third_element_does_not_matter(third):
    assert heard(wire(4, ASK, third)) == [Received(4, ASK)]


def test_a_missing_body_with_a_junk_third_element_is_only_a_malformed_request():
    for third in ({"traceparent": "x"}, {1: 2}, "junk"):
        (event,) = heard(wire(4, None, third))
        assert isinstance(event, Malformed)


def test_a_request_that_cannot_be_read_is_no_report_whatever_its_third_element_says():
    (event,) = heard(wire(4, {"type": "GetMoon"}, {"error": "protocol_error", "detail": None}))
    assert isinstance(event, Malformed)


@pytest.mark.parametrize("request_id", [5, 200, 70_000, 2**40, -100, -(2**40)])
@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_a_request_nested_beyond_reading_is_still_answered_under_its_id(request_id, depth):
    # How deep is too deep differs between versions of Python; that there is an answer does not.
    payload = b"\x92" + msgspec.msgpack.encode(request_id) + b"\x91" * depth + b"\xc0"
    (event,) = heard(encode_frame(payload))
    assert isinstance(event, Malformed)
    assert event.id == request_id


def test_nesting_where_the_id_should_be_breaks_the_protocol():
    with pytest.raises(ProtocolBroken):
        heard(encode_frame(b"\x92" + b"\x91" * 1_000 + b"\xc0\xc0"))


def test_a_frame_over_the_limit_is_refused_and_named():
    with pytest.raises(FrameTooLarge):
        heard(wire(0, ASK), frame_limit=10)
    with pytest.raises(EmptyFrame):
        heard(bytes(4))


def test_an_end_inside_a_request_is_noticed():
    session = SupervisorSession()
    assert session.at_boundary
    assert list(session.feed(wire(0, ASK)[:-1])) == []
    assert not session.at_boundary


def test_the_greeting_is_one_frame_with_id_0_and_timestamps():
    frame = SupervisorSession().greet(startup())
    request_id, body, error = said(frame)
    assert (request_id, body["type"], error) == (0, "StartupDetails", None)
    assert body["start_date"] == body["ti_context"]["dag_run"]["logical_date"] == NOW
    assert bytes.fromhex("d7ff08d24d006af956a7") in frame


def test_arguments_are_sent_only_to_runtimes_that_know_them():
    greeting = startup(arg_bindings=ARGUMENTS)
    assert "arg_bindings" not in said(SupervisorSession(schema_version="2026-06-16").greet(greeting))[1]["ti_context"]
    assert (
        len(said(SupervisorSession(schema_version="2026-10-30").greet(greeting))[1]["ti_context"]["arg_bindings"]) == 2
    )


def test_what_does_not_apply_is_omitted_and_not_nil():
    context = said(SupervisorSession().greet(startup()))[1]["ti_context"]
    assert {"arg_bindings", "stannel"}.isdisjoint(context)
    assert context["should_retry"] is True
    bindings = said(SupervisorSession().greet(startup(arg_bindings=ARGUMENTS)))[1]["ti_context"]["arg_bindings"]
    assert "value_schema" not in bindings[1]


def test_our_own_runner_gets_its_extras():
    frame = SupervisorSession().greet(startup(stannel={"file": "a.py"}))
    assert RuntimeSession().read_greeting(frame).ti_context.stannel == {"file": "a.py"}


def test_an_unknown_schema_never_gets_as_far_as_a_greeting():
    with pytest.raises(UnknownSchema):
        SupervisorSession(schema_version="2020-01-01")


def test_an_expected_miss_goes_in_the_body_and_a_failure_in_the_error_slot():
    session = SupervisorSession()
    error = {"type": "ErrorResponse", "error": "VARIABLE_NOT_FOUND", "detail": {"key": "k"}}
    assert said(session.not_found(1, ErrorCode.VARIABLE_NOT_FOUND, {"key": "k"})) == [1, error, None]
    assert said(session.refuse(1, ErrorCode.VARIABLE_NOT_FOUND, {"key": "k"})) == [1, None, error]
    assert said(session.refuse(1, ErrorCode.GENERIC_ERROR))[2]["detail"] is None


@pytest.mark.parametrize("value", [2**70, object(), "\ud800", "x" * 500])
def test_a_reply_that_cannot_be_sent_becomes_an_error_reply(value):
    session = SupervisorSession(frame_limit=300)
    request_id, body, error = said(session.reply(6, XComResult("k", value)))
    assert (request_id, body, error["error"]) == (6, None, "GENERIC_ERROR")
    assert error["detail"]["message"].startswith("XComResult cannot be sent: ")


def test_a_refusal_whose_detail_cannot_be_sent_is_still_a_refusal():
    request_id, _, error = said(SupervisorSession().refuse(6, ErrorCode.API_SERVER_ERROR, {"why": object()}))
    assert (request_id, error["error"]) == (6, "API_SERVER_ERROR")


def test_a_conversation_from_greeting_to_acknowledgement():
    supervisor, runtime = SupervisorSession(), RuntimeSession()
    assert runtime.read_greeting(supervisor.greet(startup())) == startup()
    first, asked = runtime.request(GetXCom(key="k", dag_id="d", run_id="r", task_id="t"))
    last, done = runtime.request(SucceedTask(end_date=NOW, task_outlets=[], outlet_events=[]))
    assert (first, last) == (0, 1)
    replies = b"".join(
        supervisor.reply(event.id, XComResult("k", [1]) if isinstance(event.request, GetXCom) else None)
        for event in supervisor.feed(asked + done)
    )
    assert list(runtime.feed(replies)) == [Answered(0, XComResult("k", [1]), None), Answered(1, None, None)]


def test_a_greeting_in_pieces_is_awaited_and_what_follows_it_is_kept():
    greeting, reply = SupervisorSession().greet(startup()), SupervisorSession().reply(0)
    runtime = RuntimeSession()
    assert runtime.read_greeting(greeting[:3]) is None
    assert runtime.read_greeting(greeting[3:50]) is None
    assert runtime.read_greeting(greeting[50:] + reply) == startup()
    assert list(runtime.feed(b"")) == [Answered(0, None, None)]


@pytest.mark.parametrize(
    "frame",
    [
        wire(0, None, None),
        wire(0, VariableResult("k", "v"), None),
        wire(0, {"type": "DagFileParseRequest", "file": "a.py"}, None),
        wire(0, ErrorResponse(ErrorCode.GENERIC_ERROR, {"message": "no"}), None),
        wire(0, None, ErrorResponse(ErrorCode.GENERIC_ERROR, {"message": "no"})),
        wire(0, {"type": "StartupDetails"}, None),
    ],
)
def test_anything_but_a_greeting_is_refused(frame):
    with pytest.raises(GreetingRefused):
        RuntimeSession().read_greeting(frame)


def test_an_unreadable_answer_fails_only_its_own_call():
    runtime = RuntimeSession()
    deep = encode_frame(b"\x93\x02" + b"\x91" * 1_000 + b"\xc0\xc0")
    answers = list(
        runtime.feed(wire(0, {"type": "MoonResult"}, None) + wire(1, None, ASK) + deep + wire(3, None, None))
    )
    assert [answer.id for answer in answers] == [0, 1, 2, 3]
    assert [answer.error is not None for answer in answers] == [True, True, True, False]


@pytest.mark.parametrize("value", [2**70, object(), "\ud800"])
def test_a_request_that_cannot_be_sent_is_refused_and_not_counted(value):
    runtime = RuntimeSession()
    with pytest.raises(Unsendable, match="SetXCom cannot be sent"):
        runtime.request(SetXCom(key="k", value=value, dag_id="d", run_id="r", task_id="t"))
    assert runtime.request(ASK)[0] == 0


def test_a_request_over_the_limit_is_refused_and_not_counted():
    runtime = RuntimeSession(frame_limit=100)
    with pytest.raises(MessageTooLarge):
        runtime.request(SetXCom(key="k", value="x" * 200, dag_id="d", run_id="r", task_id="t"))
    assert runtime.request(ASK)[0] == 0


@given(st.binary(max_size=200), st.integers(0, 200))
def test_noise_never_raises_anything_but_our_own_errors(noise, cut):
    for session in (SupervisorSession(frame_limit=10_000), RuntimeSession(frame_limit=10_000)):
        try:
            list(session.feed(noise[:cut]))
            list(session.feed(noise[cut:]))
        except ProtocolBroken:
            pass


def read_by_both_ends(payload):
    for session in (SupervisorSession(), RuntimeSession()):
        try:
            (event,) = session.feed(encode_frame(payload))
        except ProtocolBroken:
            continue
        assert isinstance(event, Received | Malformed | Reported | Answered)


@given(st.binary(min_size=1, max_size=100))
def test_a_frame_of_noise_is_an_event_or_a_broken_protocol(payload):
    read_by_both_ends(payload)


@given(st.sampled_from([frame for frame in GOLDEN if 8 < len(frame["frame"]) < 1000]), st.data())
def test_a_golden_frame_with_changed_bytes_is_an_event_or_a_broken_protocol(case, data):
    payload = bytearray(frame_of(case)[4:])
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    read_by_both_ends(bytes(payload))
