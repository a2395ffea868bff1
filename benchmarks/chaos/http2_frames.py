"""Takes the bytes of an HTTP/2 connection apart into frames (RFC 9113, section 4.1), and knows one kind of answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
DATA = 0x0
# A gRPC message without content: not compressed, of length 0.
EMPTY_MESSAGE = bytes(5)


class Piece(NamedTuple):
    """Bytes of one frame at most."""

    data: bytes

    @property
    def is_empty_answer(self) -> bool:
        """Whether it is a message that says nothing but that all went well."""
        length = len(EMPTY_MESSAGE).to_bytes(3, "big")
        return self.data[:4] == length + bytes([DATA]) and self.data[HEADER_BYTES:] == EMPTY_MESSAGE


class Http2Frames:
    """One direction of one connection. `has_preface`: the one that the connecting side speaks."""

    def __init__(self, *, has_preface: bool) -> None:
        self._preface_left = len(PREFACE) if has_preface else 0
        self._header = bytearray()
        self._payload_left = 0

    def split(self, data: bytes) -> Iterator[Piece]:
        """The same bytes, in order, in pieces that end where frames do."""
        start = 0
        for end in self._ends(data):
            if end > start:
                yield Piece(data[start:end])
            start = end

    def _ends(self, data: bytes) -> Iterator[int]:
        """Where each frame, or what `data` has of it, ends."""
        position = min(self._preface_left, len(data))
        self._preface_left -= position
        if position:
            yield position
        while position < len(data):
            if not self._payload_left:
                taken = data[position : position + HEADER_BYTES - len(self._header)]
                self._header += taken
                position += len(taken)
                if len(self._header) < HEADER_BYTES:
                    yield position
                    return
                self._payload_left = int.from_bytes(self._header[:3], "big")
                self._header.clear()
            passed = min(self._payload_left, len(data) - position)
            self._payload_left -= passed
            position += passed
            if not self._payload_left or position == len(data):
                yield position
