"""Places are asked for when the transfer still hides behind computing, and no earlier."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.cost import UNMEASURED, is_time_to_map

CHUNK = 1000
TIMES = replace(UNMEASURED, step_s=0.0, prefill_token_s=1e-3, prefill_pair_s=0.0)  # a second per chunk


@pytest.mark.parametrize(
    ("num_computed_chunks", "transfer_s", "due"),
    [
        (0, 0.1, False),
        (6, 0.1, False),  # two are left: after the next one there is still one to hide behind
        (7, 0.1, True),  # the last one: no report comes before its end
        (5, 1.5, False),  # 2 s are left after the next chunk
        (6, 1.5, True),  # 1 s is
        (0, 100.0, True),  # the link is slower than prefill: from the start
    ],
)
def test_the_last_moment_that_hides_the_transfer(num_computed_chunks: int, transfer_s: float, due: bool) -> None:
    assert due is is_time_to_map(
        num_tokens=8 * CHUNK,
        num_computed_tokens=num_computed_chunks * CHUNK,
        chunk_tokens=CHUNK,
        times=TIMES,
        transfer_s=transfer_s,
    )
