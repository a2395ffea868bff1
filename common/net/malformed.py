"""Which field of a message that protobuf can't read is to blame: its own error doesn't say."""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, FieldDescriptor

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5


def find_malformed_field(data: bytes, descriptor: Descriptor) -> str | None:
    """Dotted name of the first string that is not UTF-8, or of the field where the message is cut short.

    None when nothing is found. Reads the wire format only as far as needed.
    """
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        field = descriptor.fields_by_number.get(tag >> 3)
        name = field.name if field is not None else None
        wire_type = tag & 7
        if wire_type == _VARINT:
            _, position = _varint(data, position)
        elif wire_type in (_FIXED64, _FIXED32):
            position += 8 if wire_type == _FIXED64 else 4
        elif wire_type == _LENGTH_DELIMITED:
            length, position = _varint(data, position)
            value = data[position : position + length]
            position += length
            if position <= len(data) and field is not None and (inner := _find_in(value, field)) is not None:
                return inner
        else:
            return name
        if position > len(data):
            return name
    return None


def _find_in(value: bytes, field: FieldDescriptor) -> str | None:
    if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type is not None:
        inner = find_malformed_field(value, field.message_type)
        return None if inner is None else f"{field.name}.{inner}"
    if field.type == FieldDescriptor.TYPE_STRING:
        try:
            value.decode()
        except UnicodeDecodeError:
            return field.name
    return None


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return value, len(data) + 1
