"""The stream is cut into frames wherever the network cut it."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stannel.protocol.errors import EmptyFrame, FrameTooLarge, MessageTooLarge, ProtocolBroken
from stannel.protocol.frames import Frames, encode_frame

WIRE = encode_frame(b"hello") + encode_frame(b"world")


def test_a_frame_split_anywhere_arrives_whole():
    for cut in range(len(WIRE) + 1):
        frames = Frames()
        assert [*frames.feed(WIRE[:cut]), *frames.feed(WIRE[cut:])] == [b"hello", b"world"]


def test_a_stream_of_single_bytes_arrives_whole():
    frames = Frames()
    assert [payload for byte in WIRE for payload in frames.feed(bytes([byte]))] == [b"hello", b"world"]


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8), st.data())
def test_any_payloads_cut_at_any_places_arrive_in_order(payloads, data):
    wire = b"".join(map(encode_frame, payloads))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=10)))
    frames = Frames()
    pieces = [wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    assert [payload for piece in pieces for payload in frames.feed(piece)] == payloads
    assert frames.at_boundary


def test_a_large_frame_in_chunks_arrives_whole():
    payload = bytes(range(256)) * 20_000
    wire = memoryview(encode_frame(payload))
    frames = Frames()
    arrived = [whole for at in range(0, len(wire), 65536) for whole in frames.feed(wire[at : at + 65536])]
    assert arrived == [payload]


def test_the_length_is_big_endian_and_counts_the_payload_only():
    assert encode_frame(b"x" * 258) == b"\x00\x00\x01\x02" + b"x" * 258


def test_bytes_are_taken_in_even_if_nobody_iterates():
    frames = Frames()
    frames.feed(WIRE)
    assert list(frames.feed(b"")) == [b"hello", b"world"]


def test_frames_left_by_an_abandoned_iteration_come_next_time():
    frames = Frames()
    assert next(frames.feed(WIRE)) == b"hello"
    assert list(frames.feed(b"")) == [b"world"]


def test_a_frame_of_length_zero_is_refused_for_ever():
    frames = Frames()
    with pytest.raises(EmptyFrame):
        list(frames.feed(b"\x00\x00\x00\x00"))
    with pytest.raises(ProtocolBroken):
        list(frames.feed(WIRE))


def test_a_frame_at_the_limit_passes_and_one_byte_more_does_not():
    assert list(Frames(limit=5).feed(encode_frame(b"12345"))) == [b"12345"]
    with pytest.raises(FrameTooLarge) as refused:
        list(Frames(limit=5).feed(encode_frame(b"123456")))
    assert (refused.value.length, refused.value.limit) == (6, 5)


def test_the_frames_before_a_bad_one_are_delivered():
    feed = Frames(limit=10).feed(encode_frame(b"good") + b"\xff\xff\xff\xff")
    assert next(feed) == b"good"
    with pytest.raises(FrameTooLarge):
        next(feed)


def test_a_promised_length_allocates_nothing():
    frames = Frames(limit=2**32 - 1)
    tracemalloc.start()
    try:
        assert list(frames.feed(b"\xff\xff\xff\xff" + b"some")) == []
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cut", range(1, len(encode_frame(b"hello"))))
def test_an_end_in_the_middle_of_header_or_payload_is_noticed(cut):
    frames = Frames()
    assert list(frames.feed(encode_frame(b"hello")[:cut])) == []
    assert not frames.at_boundary


def test_an_end_between_frames_is_a_clean_end():
    frames = Frames()
    assert frames.at_boundary
    list(frames.feed(WIRE))
    assert frames.at_boundary


def test_a_payload_too_long_to_send_is_refused_before_its_length_is_written():
    with pytest.raises(MessageTooLarge, match=r"SetXCom cannot be sent: it has 11 bytes, the limit is 10"):
        encode_frame(b"x" * 11, limit=10, message="SetXCom")
