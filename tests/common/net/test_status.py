"""Statuses back to errors."""

from __future__ import annotations

from common.errors import UnavailableError
from common.net.status import BROKEN_STREAM, error_from_status


def test_a_stream_that_broke_under_a_write_is_a_lost_connection() -> None:
    assert isinstance(error_from_status("INTERNAL", BROKEN_STREAM), UnavailableError)
    assert not isinstance(error_from_status("INTERNAL", "a bug"), UnavailableError)
