"""The field to blame is found in broken messages."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError

from common.net.malformed import find_malformed_field
from protos import inference_pb2 as pb

GOOD = pb.GenerateRequest(model="model", priority=3, deadline_ms=5, text="text").SerializeToString()


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"\x12\x03ab\xff", "text"),
        (GOOD + b"\x0a\x02\xc3\x28", "model"),
        (b"\x12\xff\xff\xff\xff\x0f", "text"),
        (b"\x1a\x06\x0a\x04\x12\x02\xc3\x28", "chat.messages.content"),
        (b"\x12\x7fab", "text"),
        (b"\x30", "priority"),
    ],
)
def test_names_the_field(data: bytes, field: str) -> None:
    with pytest.raises(DecodeError):
        pb.GenerateRequest.FromString(data)
    assert find_malformed_field(data, pb.GenerateRequest.DESCRIPTOR) == field


def test_finds_nothing_in_a_good_message() -> None:
    assert find_malformed_field(GOOD, pb.GenerateRequest.DESCRIPTOR) is None
