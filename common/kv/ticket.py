"""A ticket: one transfer of KV blocks as its sink sees it. The machine over tickets is `ticket_table`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple

from common.kv.block_map import GroupMap
from common.kv.first_token import FirstToken
from common.request import RequestId, WorkerId


class TicketState(StrEnum):
    OFFERED = "offered"  # minted; nothing is granted
    CREDITED = "credited"  # room is reserved
    MAPPED = "mapped"  # the source may know where to write
    SENDING = "sending"  # a stream has been opened
    COMMITTED = "committed"  # every source rank has committed: the blocks belong to a running request
    RELEASED = "released"  # ended without a transfer, by the one who asked for it
    FAILED = "failed"  # given up by either end
    EXPIRED = "expired"  # nobody spoke for the length of the lease

    @property
    def is_open(self) -> bool:
        """Whether blocks may still arrive."""
        return self in (TicketState.OFFERED, TicketState.CREDITED, TicketState.MAPPED, TicketState.SENDING)


class TransferReason(IntEnum):
    """The values are those of protos/transfer.proto."""

    HANDOVER = 1
    DRAIN = 2
    MIGRATION = 3
    PEER_FETCH = 4


class BlockRef(NamedTuple):
    """A logical block of one group."""

    group_id: int
    logical_block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketOffer:
    """What a transfer is for, known when its ticket is minted."""

    request_id: RequestId
    attempt: int
    choice_indices: tuple[int, ...]
    source_worker_id: WorkerId | None  # None: any source that holds the ticket
    reason: TransferReason


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCommit:
    """What one source rank says that it has sent. `checksums` are of the kind that the two ends agreed on, by
    block sent."""

    generation: int
    rank: int
    num_ranks: int
    num_computed_tokens: int  # tokens whose KV is at the sink after this
    checksums: Mapping[BlockRef, int]
    first_tokens: tuple[FirstToken, ...]
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """The transfer is complete: call `Engine.commit` with these."""

    ticket_id: str
    reservation_id: str
    first_tokens: tuple[FirstToken, ...]
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """The transfer has ended without a commit: call `Engine.release_reservation` with these."""

    ticket_id: str
    reservation_id: str
    quarantine: bool  # a stream may still write: EndQuarantine follows


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuarantine:
    """The last stream of a dropped ticket has ended: call `Engine.end_quarantine`."""

    ticket_id: str
    reservation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelLeg:
    """A committed ticket was aborted or released: call `Engine.cancel`."""

    ticket_id: str
    request_id: RequestId
    attempt: int
    choice_indices: tuple[int, ...]


TicketAction = Admit | Drop | EndQuarantine | CancelLeg


@dataclass(slots=True, kw_only=True)
class Ticket:
    """State of one transfer. Owner: TicketTable; others only read.

    `maps` and `received` belong to the current `generation`; `received` holds, for each block, the extents
    (offset → length, bytes) that have been given a place.
    """

    ticket_id: str
    offer: TicketOffer
    state: TicketState
    expires_at_s: float
    generation: int = 0
    reservation_id: str | None = None
    credit_tokens: int = 0
    num_tokens: int = 0  # tokens whose KV the blocks hold when all have arrived
    maps: tuple[GroupMap, ...] = ()
    received: dict[BlockRef, dict[int, int]] = field(default_factory=dict)
    received_bytes: int = 0
    commits: dict[int, RankCommit] = field(default_factory=dict)
    open_streams: dict[int, int] = field(default_factory=dict)  # stream id → source rank
    quarantined: bool = False
    end_message: str = ""  # why it failed, for people
