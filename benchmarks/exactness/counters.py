"""The workers' own counters, read over their administrative service, and their differences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from protos import worker_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Counters of LoadReport of the same names; of several workers together."""

    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    num_preemptions: int = 0
    num_swap_outs: int = 0
    swapped_out_blocks: int = 0
    swapped_in_blocks: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    sent_blocks: int = 0
    received_blocks: int = 0
    num_generated_tokens: int = 0
    num_prefilled_tokens: int = 0

    def __sub__(self, earlier: Counters) -> Counters:
        return Counters(**{field.name: getattr(self, field.name) - getattr(earlier, field.name) for field in _FIELDS})


def sum_counters(loads: Iterable[worker_pb2.LoadReport]) -> Counters:
    loads = tuple(loads)
    return Counters(**{field.name: sum(getattr(load, field.name) for load in loads) for field in _FIELDS})


_FIELDS = fields(Counters)
