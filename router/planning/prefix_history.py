"""Prefixes that this router has seen in prompts, whoever holds them now: tells a new prompt from a forgotten one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from common.kv.block_key import BlockKey

# About 120 bytes each.
MAX_POINTS = 262_144


class PrefixHistory:
    """The least recently seen points are forgotten first, ends of prompts before their beginnings."""

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self._points: OrderedDict[BlockKey, None] = OrderedDict()
        self._max_points = max_points

    def count_known(self, point_keys: Sequence[BlockKey]) -> int:
        """Leading points that were seen before."""
        for index, key in enumerate(point_keys):
            if key not in self._points:
                return index
        return len(point_keys)

    def add(self, point_keys: Sequence[BlockKey]) -> None:
        points = self._points
        for key in reversed(point_keys):
            points[key] = None
            points.move_to_end(key)
        while len(points) > self._max_points:
            points.popitem(last=False)
