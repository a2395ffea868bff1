"""Frames in the bytes of a connection."""

from __future__ import annotations

import pytest

from benchmarks.chaos.http2_frames import PREFACE, Http2Frames

DATA, HEADERS = 0, 1


def frame(kind: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + (1).to_bytes(4, "big") + payload


HEAD = frame(HEADERS, b"status")
BODY = frame(DATA, b"\0\0\0\0\4abcd")
NOTHING = frame(DATA, b"")
EMPTY_ANSWER = frame(DATA, bytes(5))


def test_pieces_end_where_frames_do() -> None:
    frames = [HEAD, BODY, NOTHING, EMPTY_ANSWER, HEAD]
    pieces = list(Http2Frames(has_preface=False).split(b"".join(frames)))
    assert [piece.data for piece in pieces] == frames
    assert [piece.is_empty_answer for piece in pieces] == [False, False, False, True, False]


def test_the_preface_is_no_frame() -> None:
    pieces = list(Http2Frames(has_preface=True).split(PREFACE + EMPTY_ANSWER))
    assert [piece.data for piece in pieces] == [PREFACE, EMPTY_ANSWER]


@pytest.mark.parametrize("kind", [HEADERS, 2, 4])
def test_only_a_message_can_be_an_answer(kind: int) -> None:
    (piece,) = Http2Frames(has_preface=False).split(frame(kind, bytes(5)))
    assert not piece.is_empty_answer


@pytest.mark.parametrize("step", [1, 2, 5, 9, 10, 31])
def test_however_the_bytes_come_frames_end_where_they_did(step: int) -> None:
    splitter = Http2Frames(has_preface=True)
    frames = [PREFACE, HEAD, BODY, NOTHING, EMPTY_ANSWER, HEAD, BODY]
    data = b"".join(frames)
    pieces = [piece for start in range(0, len(data), step) for piece in splitter.split(data[start : start + step])]
    assert b"".join(piece.data for piece in pieces) == data
    ends = {sum(len(one.data) for one in pieces[:count]) for count in range(1, len(pieces) + 1)}
    assert ends >= {sum(map(len, frames[:count])) for count in range(1, len(frames) + 1)}
