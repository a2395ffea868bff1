"""The hand-written frame is the protobuf message, byte for byte."""

from __future__ import annotations

import pytest

from common.errors import TransferError
from common.transport.frame import decode_frame, encode_frame
from protos import transfer_pb2 as pb


def header() -> pb.PushHeader:
    return pb.PushHeader(
        ticket_id="ticket",
        generation=3,
        rank=0,
        group_id=0,
        extents=[pb.Extent(logical_block=7, offset=16, length=300)],
    )


def test_is_what_protobuf_writes() -> None:
    payload = bytes(range(256)) + bytes(44)
    frame = encode_frame(header(), [memoryview(payload[:100]), memoryview(payload[100:])])
    assert frame == pb.PushFrame(header=header(), payload=payload).SerializeToString()


def test_reads_back_without_a_copy() -> None:
    frame = encode_frame(header(), [memoryview(b"x" * 300)])
    read, payload = decode_frame(frame)
    assert read == header()
    assert payload == b"x" * 300
    assert payload.obj is frame


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x0a",
        b"\x0a\x05abc",
        b"\x12\x00",
        b"\x0a\x00\x12\x05abc",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
)
def test_malformed_is_refused(frame: bytes) -> None:
    with pytest.raises(TransferError):
        decode_frame(frame)


def test_bytes_after_the_payload_are_refused() -> None:
    with pytest.raises(TransferError):
        decode_frame(encode_frame(header(), [memoryview(b"x")]) + b"!")


def test_malformed_header_is_refused() -> None:
    with pytest.raises(TransferError):
        decode_frame(b"\x0a\x02\xff\xff\x12\x00")
