"""Messages that no process of ours would send: made from the descriptors, so that a new field is attacked at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

MAX_DEPTH = 4
MAX_REPEATED = 3

_UNSIGNED_32 = st.sampled_from([0, 1, 2, 3, 17, 255, 4096, 2**31 - 1, 2**31, 2**32 - 1])
_SIGNED_32 = st.sampled_from([0, 1, -1, 7, 2**31 - 1, -(2**31)])
_UNSIGNED_64 = st.sampled_from([0, 1, 2, 1000, 2**31, 2**32, 2**53, 2**63, 2**64 - 1])
_SIGNED_64 = st.sampled_from([0, 1, -1, 1000, 2**31, 2**62, 2**63 - 1, -(2**63)])
_FLOATS = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-38, 3e38, float("inf"), float("-inf"), float("nan")])
_TEXTS = st.sampled_from(
    ["", "a", "tiny", "x" * 3000, "\x00\u202e\U0001f4a5", "../../etc/passwd", '{"a": [1, {}]}', "[[[["]
)
_BYTES = st.sampled_from([b"", b"\x00", b"\xff" * 16, bytes(range(256)) * 4])

_SCALARS: Mapping[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_DOUBLE: _FLOATS,
    FieldDescriptor.TYPE_FLOAT: _FLOATS,
    FieldDescriptor.TYPE_INT64: _SIGNED_64,
    FieldDescriptor.TYPE_UINT64: _UNSIGNED_64,
    FieldDescriptor.TYPE_INT32: _SIGNED_32,
    FieldDescriptor.TYPE_FIXED64: _UNSIGNED_64,
    FieldDescriptor.TYPE_FIXED32: _UNSIGNED_32,
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_STRING: _TEXTS,
    FieldDescriptor.TYPE_BYTES: _BYTES,
    FieldDescriptor.TYPE_UINT32: _UNSIGNED_32,
    FieldDescriptor.TYPE_ENUM: st.sampled_from([0, 1, 2, 3, 99, -1, 2**31 - 1]),
    FieldDescriptor.TYPE_SFIXED32: _SIGNED_32,
    FieldDescriptor.TYPE_SFIXED64: _SIGNED_64,
    FieldDescriptor.TYPE_SINT32: _SIGNED_32,
    FieldDescriptor.TYPE_SINT64: _SIGNED_64,
}


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor, known: Mapping[str, str], depth: int = 0) -> Message:
    """A message with some of its fields. `known` are texts that mean something there, by field name."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if not draw(st.booleans()):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_map(draw, message, field)
        elif field.is_repeated:
            for _ in range(draw(st.integers(0, MAX_REPEATED))):
                _append(draw, message, field, known, depth)
        elif field.message_type is not None:
            if depth < MAX_DEPTH:
                getattr(message, field.name).CopyFrom(draw(messages(field.message_type, known, depth + 1)))
        else:
            setattr(message, field.name, draw(_scalar(field, known)))
    return message


def encoded(descriptor: Descriptor, known: Mapping[str, str]) -> st.SearchStrategy[bytes]:
    """Bytes on the wire: of a message, of one with some bytes changed, or of none at all."""
    whole = messages(descriptor, known).map(lambda message: message.SerializeToString())
    return whole | st.builds(_damaged, whole, st.integers(0, 2**16), st.binary(max_size=4)) | st.binary(max_size=64)


def _damaged(message: bytes, position: int, other: bytes) -> bytes:
    if not message:
        return other
    start = position % len(message)
    return message[:start] + other + message[start + len(other) :]


def _scalar(field: FieldDescriptor, known: Mapping[str, str]) -> st.SearchStrategy[Any]:
    strategy = _SCALARS[field.type]
    return strategy | st.just(known[field.name]) if field.name in known else strategy


def _append(draw: st.DrawFn, message: Message, field: FieldDescriptor, known: Mapping[str, str], depth: int) -> None:
    values = getattr(message, field.name)
    if field.message_type is None:
        values.append(draw(_scalar(field, known)))
    elif depth < MAX_DEPTH:
        values.append(draw(messages(field.message_type, known, depth + 1)))


def _fill_map(draw: st.DrawFn, message: Message, field: FieldDescriptor) -> None:
    assert field.message_type is not None
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    assert value.message_type is None, "maps of messages are not used"
    for _ in range(draw(st.integers(0, MAX_REPEATED))):
        getattr(message, field.name)[draw(_SCALARS[key.type])] = draw(_SCALARS[value.type])
