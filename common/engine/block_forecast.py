"""Whether blocks will be there when they are needed, by what is known of when others come free."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class BlockEvent(NamedTuple):
    """So many blocks are needed, or come free, at a time (seconds from now)."""

    at_s: float
    num_blocks: int


def blocks_suffice(num_free_blocks: int, needs: Iterable[BlockEvent], releases: Iterable[BlockEvent]) -> bool:
    """Whether at each need's time the blocks free now and those come free by then cover all needs until then."""
    coming = sorted(releases, reverse=True)
    left = num_free_blocks
    for need in sorted(needs):
        while coming and coming[-1].at_s <= need.at_s:
            left += coming.pop().num_blocks
        left -= need.num_blocks
        if left < 0:
            return False
    return True
