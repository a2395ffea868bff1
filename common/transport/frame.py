"""PushFrame on the wire, written and read in place.

The bytes are exactly those of the protobuf message `PushFrame`, so any implementation can speak it; doing it
by hand saves protobuf's copies of the payload (raw bytes about doubled the rate of a gRPC stream).
"""

from __future__ import annotations

from collections.abc import Sequence

from common.errors import TransferError
from protos import transfer_pb2 as pb

HEADER_TAG = 0x0A  # field 1, length-delimited
PAYLOAD_TAG = 0x12  # field 2, length-delimited


def encode_frame(header: pb.PushHeader, payload: Sequence[memoryview]) -> bytes:
    """One PushFrame. Copies the payload once, into the bytes that gRPC wants."""
    encoded_header = header.SerializeToString()
    num_payload_bytes = sum(len(part) for part in payload)
    return b"".join(
        (
            bytes((HEADER_TAG,)),
            _encode_varint(len(encoded_header)),
            encoded_header,
            bytes((PAYLOAD_TAG,)),
            _encode_varint(num_payload_bytes),
            *payload,
        )
    )


def decode_frame(frame: bytes) -> tuple[pb.PushHeader, memoryview]:
    """Header and payload of a frame; the payload is a view, not a copy. Raises TransferError when malformed."""
    view = memoryview(frame)
    header_bytes, rest = _field(view, 0, HEADER_TAG)
    payload, end = _field(view, rest, PAYLOAD_TAG)
    if end != len(view):
        raise TransferError("push frame: bytes after the payload")
    try:
        header = pb.PushHeader.FromString(bytes(header_bytes))
    except Exception as error:
        raise TransferError("push frame: malformed header") from error
    return header, payload


def _field(view: memoryview, position: int, tag: int) -> tuple[memoryview, int]:
    if position >= len(view) or view[position] != tag:
        raise TransferError("push frame: unexpected field")
    length, start = _decode_varint(view, position + 1)
    end = start + length
    if end > len(view):
        raise TransferError("push frame: cut short")
    return view[start:end], end


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _decode_varint(view: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(view) and shift < 64:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise TransferError("push frame: malformed length")
