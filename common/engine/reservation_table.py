"""Room that a decode engine holds for KV on its way."""

from __future__ import annotations

from dataclasses import dataclass, field

from common.kv.block_table import BlockTable
from common.kv.manager import KVCacheManager, TokenArray
from common.request import Leg, RequestId


@dataclass(slots=True, kw_only=True)
class ReservedLeg:
    """A leg whose KV has not arrived. Its blocks are pinned or allocated once it is mapped; until then it has none."""

    leg: Leg
    token_ids: TokenArray  # [num_tokens] prompt and outputs so far
    table: BlockTable
    is_mapped: bool = False
    num_present_blocks: int = 0  # of a mapped one: leading blocks that were cached
    map_at_s: float = 0.0  # when it is expected to be mapped, on the engine's clock
    is_owed: bool = False  # it was to be mapped, and blocks were short
    cancelled_choices: set[int] = field(default_factory=set)


class ReservationTable:
    """Open reservations, and the blocks of dropped ones that may still be written. Owner: the engine, one thread."""

    def __init__(self, kv: KVCacheManager) -> None:
        self._kv = kv
        self._open: dict[str, ReservedLeg] = {}
        self._quarantined: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def num_unsettled(self) -> int:
        """Reservations that are open or whose blocks are in quarantine."""
        return len(self._open) + len(self._quarantined)

    @property
    def reserved(self) -> list[ReservedLeg]:
        return list(self._open.values())

    @property
    def num_choices(self) -> int:
        return sum(len(reserved.leg.choice_indices) for reserved in self._open.values())

    def add(self, reservation_id: str, reserved: ReservedLeg) -> None:
        self._open[reservation_id] = reserved

    def take(self, reservation_id: str) -> ReservedLeg | None:
        """Ends a reservation whose blocks go on to be used."""
        return self._open.pop(reservation_id, None)

    def get(self, reservation_id: str) -> ReservedLeg | None:
        return self._open.get(reservation_id)

    def release(self, reservation_id: str, *, quarantine: bool) -> None:
        """Ends a reservation without a commit. Idempotent."""
        reserved = self._open.pop(reservation_id, None)
        if reserved is None:
            return
        if quarantine:
            block_ids = self._kv.quarantine(reserved.table, reserved.num_present_blocks)
            self._quarantined[reservation_id] = block_ids
        else:
            self._kv.free(reserved.table)

    def end_quarantine(self, reservation_id: str) -> None:
        """Nothing can write to the dropped reservation's blocks any more. Idempotent."""
        self._kv.pool.end_quarantine(self._quarantined.pop(reservation_id, ()))

    def cancel(self, request_id: RequestId, attempt: int | None, choice_indices: tuple[int, ...]) -> None:
        """Choices that must not start when the KV arrives. The blocks stay: they may be written now."""
        for reserved in self._open.values():
            leg = reserved.leg
            if leg.request_id == request_id and attempt in (None, leg.attempt):
                reserved.cancelled_choices.update(choice_indices or leg.choice_indices)
