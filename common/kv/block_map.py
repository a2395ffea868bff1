"""Where the blocks of one sequence lie at a sink, and which of them it holds already."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMap:
    """One group's part: by logical block, the block's id at the sink and whether its KV is there already."""

    group_id: int
    block_ids: tuple[int, ...]
    present: tuple[bool, ...]

    def __post_init__(self) -> None:
        assert len(self.block_ids) == len(self.present)

    @property
    def missing(self) -> tuple[int, ...]:
        """Logical blocks that must be sent."""
        return tuple(index for index, present in enumerate(self.present) if not present)
