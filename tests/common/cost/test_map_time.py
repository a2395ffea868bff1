"""Places are asked for when the transfer still hides behind computing, and no earlier."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.cost import UNMEASURED, map_in_s
from common.cost.map_time import ANSWER_S, MARGIN

CHUNK = 1000
TIMES = replace(UNMEASURED, step_s=0.0, prefill_token_s=1e-3, prefill_pair_s=0.0)  # a second per chunk


def wait_s(num_computed: int, token_transfer_s: float, num_tokens: int = 8 * CHUNK) -> float:
    return map_in_s(
        num_tokens=num_tokens,
        num_computed_tokens=num_computed,
        chunk_tokens=CHUNK,
        times=TIMES,
        token_transfer_s=token_transfer_s,
    )


@pytest.mark.parametrize(
    ("num_computed", "num_hidden"),
    [
        (0, 7000),  # the last of the chunks can't hide
        (5000, 7000),
        (7600, 7600),  # a part of a chunk is left
    ],
)
def test_what_is_left_to_compute_hides_what_was_computed_before_its_last_chunk(
    num_computed: int, num_hidden: int
) -> None:
    left_s = (8000 - num_computed) * 1e-3
    assert wait_s(num_computed, 1e-6) == pytest.approx(left_s - MARGIN * num_hidden * 1e-6 - ANSWER_S)


def test_a_prompt_of_one_chunk_has_nothing_to_send_before_its_end() -> None:
    assert wait_s(0, 1e-6, num_tokens=CHUNK) == wait_s(0, 1.0, num_tokens=CHUNK) == pytest.approx(1.0 - ANSWER_S)


def test_a_link_slower_than_prefill_is_used_from_the_start() -> None:
    assert wait_s(0, 1.0) == 0


def test_a_prompt_that_is_computed_asks_at_once() -> None:
    assert wait_s(8000, 1e-9) == 0
