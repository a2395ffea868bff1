"""Finds the ends of calls in the bytes of an HTTP/2 connection (RFC 9113, section 4.1). Reads no payload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
HEADERS, END_STREAM = 0x1, 0x1


class Piece(NamedTuple):
    """Bytes of one frame at most. `ends_call`: the last ones of a frame of trailers."""

    data: bytes
    ends_call: bool


class Http2Frames:
    """One direction of one connection. `has_preface`: the one that the connecting side speaks."""

    def __init__(self, *, has_preface: bool) -> None:
        self._preface_left = len(PREFACE) if has_preface else 0
        self._header = bytearray()
        self._payload_left = 0
        self._ends_call = False

    def split(self, data: bytes) -> Iterator[Piece]:
        """The same bytes, in order, in pieces that end where frames do."""
        start = 0
        for end in self._ends(data):
            if end > start:
                yield Piece(data[start:end], self._ends_call and not self._payload_left and not self._header)
            start = end

    def _ends(self, data: bytes) -> Iterator[int]:
        """Where each frame, or what `data` has of it, ends."""
        position = min(self._preface_left, len(data))
        self._preface_left -= position
        if position:
            self._ends_call = False
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
                self._ends_call = self._header[3] == HEADERS and bool(self._header[4] & END_STREAM)
                self._header.clear()
            passed = min(self._payload_left, len(data) - position)
            self._payload_left -= passed
            position += passed
            if not self._payload_left or position == len(data):
                yield position
