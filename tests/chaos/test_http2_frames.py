"""Where calls end in the bytes of a connection."""

from __future__ import annotations

import pytest

from benchmarks.chaos.http2_frames import PREFACE, Http2Frames, Piece

DATA, HEADERS, END_STREAM = 0, 1, 1


def frame(kind: int, flags: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + (1).to_bytes(4, "big") + payload


ANSWER = frame(HEADERS, 4, b"status")
BODY = frame(DATA, 0, b"a message")
TRAILERS = frame(HEADERS, 4 | END_STREAM, b"grpc-status")
EMPTY = frame(DATA, 0, b"")


def test_pieces_end_where_frames_do() -> None:
    pieces = list(Http2Frames(has_preface=False).split(ANSWER + BODY + EMPTY + TRAILERS + ANSWER))
    assert pieces == [
        Piece(ANSWER, False),
        Piece(BODY, False),
        Piece(EMPTY, False),
        Piece(TRAILERS, True),
        Piece(ANSWER, False),
    ]


def test_the_preface_is_no_frame() -> None:
    pieces = list(Http2Frames(has_preface=True).split(PREFACE + TRAILERS))
    assert pieces == [Piece(PREFACE, False), Piece(TRAILERS, True)]


@pytest.mark.parametrize("step", [1, 2, 5, 9, 10, 31])
def test_however_the_bytes_come(step: int) -> None:
    frames = Http2Frames(has_preface=True)
    data = PREFACE + ANSWER + BODY + TRAILERS + EMPTY + BODY + TRAILERS + ANSWER
    pieces = [piece for start in range(0, len(data), step) for piece in frames.split(data[start : start + step])]
    assert b"".join(piece.data for piece in pieces) == data
    ends = [sum(len(one.data) for one in pieces[: place + 1]) for place, piece in enumerate(pieces) if piece.ends_call]
    first = len(PREFACE + ANSWER + BODY + TRAILERS)
    assert ends == [first, first + len(EMPTY + BODY + TRAILERS)]
