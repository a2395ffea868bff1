"""The ticket machine: every transfer into this worker, from the first word to the last stream's end.

Pure: no I/O, no clock (callers pass `now`, seconds on one monotonic clock), no blocks. What the caller must do to
its engine is queued as actions, in order. Call a method, then carry out `drain_actions()`, in that order and also
when the method raised:

    try:
        table.commit(ticket_id, commit, checksums_here, now)
    finally:
        for action in table.drain_actions(): ...

The usual path: offer → credit → map → (open_stream → place … → close_stream) → commit, which queues Admit.
`abort`, `release` and `expire` are legal in any state; all three, and every violation by the source, end an
open ticket with Drop. Blocks of a dropped ticket are quarantined until its last stream has been closed, since a
stream that is still open may be writing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping

from common.errors import IntegrityError, SlipstreamError, StaleTicketError, TransferError
from common.kv.block_map import GroupMap
from common.kv.spec import KVCacheSpec
from common.kv.ticket import (
    Admit,
    BlockRef,
    CancelLeg,
    Drop,
    EndQuarantine,
    RankCommit,
    Ticket,
    TicketAction,
    TicketOffer,
    TicketState,
)


def mint_ticket_id() -> str:
    """128 random bits: who was not given a ticket can't name it."""
    return secrets.token_hex(16)


class TicketTable:
    """All tickets of one sink. One thread.

    A ticket that has ended is remembered for `memory_s` seconds, so that repeated messages are answered alike.
    """

    def __init__(
        self, *, spec: KVCacheSpec, lease_s: float, memory_s: float = 60.0, mint: Callable[[], str] = mint_ticket_id
    ) -> None:
        self.lease_s = lease_s
        self._memory_s = memory_s
        self._mint = mint
        self._bytes_per_block = {group.group_id: group.bytes_per_block for group in spec.groups}
        self._tickets: dict[str, Ticket] = {}
        self._actions: list[TicketAction] = []
        self._next_stream_id = 0

    @property
    def num_open(self) -> int:
        """Tickets that may still receive blocks."""
        return sum(1 for ticket in self._tickets.values() if ticket.state.is_open)

    def get(self, ticket_id: str) -> Ticket:
        """Raises StaleTicketError when there is none of that id (any more)."""
        ticket = self._tickets.get(ticket_id)
        if ticket is None:
            raise StaleTicketError("unknown ticket: it has ended, or was never given")
        return ticket

    def __iter__(self) -> Iterator[Ticket]:
        """Every ticket that is remembered."""
        return iter(self._tickets.values())

    def is_open(self, ticket_id: str) -> bool:
        """Whether blocks may still arrive for it; not for tickets that nobody knows (any more)."""
        ticket = self._tickets.get(ticket_id)
        return ticket is not None and ticket.state.is_open

    def drain_actions(self) -> list[TicketAction]:
        """What to do to the engine since the last call, in order."""
        actions = self._actions
        self._actions = []
        return actions

    def offer(self, offer: TicketOffer, now: float) -> Ticket:
        """Mints a ticket: OFFERED, under a lease."""
        ticket = Ticket(ticket_id=self._mint(), offer=offer, state=TicketState.OFFERED, expires_at_s=now + self.lease_s)
        self._tickets[ticket.ticket_id] = ticket
        return ticket

    def credit(self, ticket_id: str, *, reservation_id: str, credit_tokens: int, num_tokens: int, now: float) -> None:
        """The engine has made a reservation for KV of `num_tokens` tokens: CREDITED.

        When the ticket was aborted meanwhile, Drop is queued for the reservation, and StaleTicketError raised.
        """
        ticket = self._tickets.get(ticket_id)
        if ticket is None or ticket.state is not TicketState.OFFERED:
            self._actions.append(Drop(ticket_id=ticket_id, reservation_id=reservation_id, quarantine=False))
            raise StaleTicketError("the ticket ended before room was found")
        ticket.reservation_id = reservation_id
        ticket.credit_tokens = credit_tokens
        ticket.num_tokens = num_tokens
        ticket.state = TicketState.CREDITED
        self._renew(ticket, now)

    def map(self, ticket_id: str, maps: tuple[GroupMap, ...], now: float) -> int:
        """MAPPED, with a new generation, which is returned: what an older one sent does not count any more.

        Raises StaleTicketError when a stream of an older generation is still open, for it may be writing.
        """
        ticket = self._open_ticket(ticket_id)
        if ticket.state is TicketState.OFFERED:
            raise StaleTicketError("the ticket has no credit yet")
        if ticket.open_streams:
            raise StaleTicketError("a stream of an earlier mapping is still open")
        ticket.maps = maps
        ticket.received = {
            BlockRef(group.group_id, logical_block): {} for group in maps for logical_block in group.missing
        }
        ticket.commits = {}
        ticket.generation += 1
        ticket.state = TicketState.MAPPED
        self._renew(ticket, now)
        return ticket.generation

    def touch(self, ticket_id: str, now: float) -> None:
        """A sign of life from either end renews the lease. Raises StaleTicketError when the ticket has ended."""
        self._renew(self._open_ticket(ticket_id), now)

    def open_stream(self, ticket_id: str, *, generation: int, rank: int, now: float) -> int:
        """A source rank begins to push: SENDING. Returns a stream id; `close_stream` must follow, whatever happens.

        Raises StaleTicketError when the ticket has ended, is not mapped, or is of another generation.
        """
        ticket = self._current(ticket_id, generation)
        if rank in ticket.commits:
            raise StaleTicketError(f"rank {rank} has committed already")
        self._next_stream_id += 1
        ticket.open_streams[self._next_stream_id] = rank
        ticket.state = TicketState.SENDING
        self._renew(ticket, now)
        return self._next_stream_id

    def place(self, ticket_id: str, stream_id: int, ref: BlockRef, *, offset: int, length: int, now: float) -> int:
        """Where the bytes [offset, offset + length) of a logical block go: the block id to write them to, at once.

        Raises StaleTicketError when the ticket has ended (stop reading the stream), and TransferError, which also
        fails the ticket, for bytes that nobody asked for.
        """
        ticket = self._open_ticket(ticket_id)
        if stream_id not in ticket.open_streams:
            raise StaleTicketError("the stream is closed")
        extents = ticket.received.get(ref)
        if extents is None:
            raise self._violation(ticket, f"block {tuple(ref)} is here already or not of this sequence", now)
        if offset < 0 or length <= 0 or offset + length > self._bytes_per_block[ref.group_id]:
            raise self._violation(ticket, f"bytes {offset} to {offset + length} are not of block {tuple(ref)}", now)
        extents[offset] = max(length, extents.get(offset, 0))
        ticket.received_bytes += length
        self._renew(ticket, now)
        return ticket.maps[ref.group_id].block_ids[ref.logical_block]

    def close_stream(self, ticket_id: str, stream_id: int, now: float) -> None:
        """Nothing can be written through this stream any more. Idempotent; ends a quarantine when it is the last."""
        ticket = self._tickets.get(ticket_id)
        if ticket is None or ticket.open_streams.pop(stream_id, None) is None:
            return
        if ticket.state.is_open:
            self._renew(ticket, now)
        elif not ticket.open_streams and ticket.quarantined:
            assert ticket.reservation_id is not None
            ticket.quarantined = False
            ticket.expires_at_s = now + self._memory_s
            self._actions.append(EndQuarantine(ticket_id=ticket_id, reservation_id=ticket.reservation_id))

    def commit(
        self, ticket_id: str, commit: RankCommit, checksums_here: Mapping[BlockRef, int], now: float
    ) -> TicketState:
        """One source rank is done. COMMITTED, and Admit is queued, when it is the last; SENDING or MAPPED until then.

        `checksums_here` are of the commit's kind, of what lies in the blocks that `commit` names, computed here after
        the rank's streams have ended. Repeating an accepted commit changes nothing. Raises StaleTicketError for a
        ticket that has ended or is of another generation or attempt; TransferError, which also fails the ticket, when
        blocks, bytes or checksums are not what was to be sent.
        """
        ticket = self.get(ticket_id)
        if ticket.commits.get(commit.rank) == commit and (ticket.state.is_open or self._is_committed(ticket)):
            return ticket.state
        ticket = self._current(ticket_id, commit.generation)
        if commit.attempt != ticket.offer.attempt:
            raise StaleTicketError(f"attempt {commit.attempt} is not the ticket's, {ticket.offer.attempt}")
        problem = self._find_problem(ticket, commit, checksums_here)
        if problem is not None:
            raise self._violation(ticket, problem, now)
        ticket.commits[commit.rank] = commit
        self._renew(ticket, now)
        if len(ticket.commits) == commit.num_ranks:
            self._admit(ticket, now)
        return ticket.state

    def abort(self, ticket_id: str, message: str, now: float) -> None:
        """Either end gives up: FAILED. Idempotent, and legal in any state and for unknown tickets."""
        self._end(ticket_id, TicketState.FAILED, message, now)

    def release(self, ticket_id: str, now: float) -> None:
        """The request ended before there was anything to decode: RELEASED. Idempotent, legal in any state."""
        self._end(ticket_id, TicketState.RELEASED, "released", now)

    def expire(self, now: float) -> list[Ticket]:
        """Ends tickets whose lease has run out: EXPIRED. Forgets those that ended long ago. Returns the expired."""
        expired = []
        for ticket in [ticket for ticket in self._tickets.values() if ticket.expires_at_s <= now]:
            if ticket.state.is_open:
                self._drop(ticket, TicketState.EXPIRED, f"no word for {self.lease_s:g} s", now)
                expired.append(ticket)
            elif not ticket.open_streams:
                del self._tickets[ticket.ticket_id]
        return expired

    def check_integrity(self) -> None:
        """Raises IntegrityError when a ticket contradicts itself."""
        for ticket in self._tickets.values():
            state = ticket.state
            expectations = {
                "an open ticket is quarantined": not (state.is_open and ticket.quarantined),
                "a quarantine has no stream to wait for": not ticket.quarantined or bool(ticket.open_streams),
                "a ticket without credit is mapped": ticket.reservation_id is not None or not ticket.maps,
                "a ticket is sending without a map": state is not TicketState.SENDING or ticket.generation > 0,
                "a stream is open on an unmapped ticket": not ticket.open_streams or ticket.generation > 0,
                "a committed ticket has an open stream": state is not TicketState.COMMITTED or not ticket.open_streams,
            }
            for message, holds in expectations.items():
                if not holds:
                    raise IntegrityError(f"ticket {ticket.ticket_id} ({state}): {message}")

    def _renew(self, ticket: Ticket, now: float) -> None:
        ticket.expires_at_s = max(ticket.expires_at_s, now + self.lease_s)

    def _open_ticket(self, ticket_id: str) -> Ticket:
        ticket = self.get(ticket_id)
        if not ticket.state.is_open:
            raise StaleTicketError(f"the ticket has ended ({ticket.state}): {ticket.end_message or 'committed'}")
        return ticket

    def _current(self, ticket_id: str, generation: int) -> Ticket:
        ticket = self._open_ticket(ticket_id)
        if ticket.state not in (TicketState.MAPPED, TicketState.SENDING):
            raise StaleTicketError("the ticket is not mapped yet")
        if generation != ticket.generation:
            raise StaleTicketError(f"generation {generation} is not the ticket's, {ticket.generation}")
        return ticket

    def _is_committed(self, ticket: Ticket) -> bool:
        return ticket.state is TicketState.COMMITTED

    def _find_problem(self, ticket: Ticket, commit: RankCommit, checksums_here: Mapping[BlockRef, int]) -> str | None:
        if not 0 <= commit.rank < commit.num_ranks:
            return f"rank {commit.rank} is not one of {commit.num_ranks}"
        if any(other.num_ranks != commit.num_ranks for other in ticket.commits.values()):
            return f"another rank committed one of another number of ranks than {commit.num_ranks}"
        if commit.rank in ticket.open_streams.values():
            return f"rank {commit.rank} commits while its stream is still open"
        if commit.num_computed_tokens != ticket.num_tokens:
            return f"KV of {commit.num_computed_tokens} tokens was sent, of {ticket.num_tokens} is needed"
        if set(commit.checksums) != set(ticket.received):
            return f"{len(commit.checksums)} blocks were sent, {len(ticket.received)} are needed, or others"
        for ref, checksum in commit.checksums.items():
            if checksums_here.get(ref) != checksum:
                return f"checksum of block {tuple(ref)} differs: sent {checksum:#x}"
        is_last = len(ticket.commits) + (commit.rank not in ticket.commits) == commit.num_ranks
        return self._find_missing_bytes(ticket) if is_last else None

    def _find_missing_bytes(self, ticket: Ticket) -> str | None:
        if ticket.open_streams:
            return "the last rank commits while a stream is still open"
        for ref, extents in ticket.received.items():
            end = 0
            for offset in sorted(extents):
                if offset > end:
                    break
                end = max(end, offset + extents[offset])
            if end != self._bytes_per_block[ref.group_id]:
                return f"bytes from {end} on of block {tuple(ref)} have not arrived"
        return None

    def _violation(self, ticket: Ticket, message: str, now: float) -> SlipstreamError:
        self._drop(ticket, TicketState.FAILED, message, now)
        return TransferError(message)

    def _admit(self, ticket: Ticket, now: float) -> None:
        assert ticket.reservation_id is not None
        ticket.state = TicketState.COMMITTED
        ticket.expires_at_s = now + self._memory_s
        first_tokens = next((c.first_tokens for c in ticket.commits.values() if c.first_tokens), ())
        self._actions.append(
            Admit(
                ticket_id=ticket.ticket_id,
                reservation_id=ticket.reservation_id,
                first_tokens=first_tokens,
                attempt=ticket.offer.attempt,
            )
        )

    def _end(self, ticket_id: str, state: TicketState, message: str, now: float) -> None:
        ticket = self._tickets.get(ticket_id)
        if ticket is None:
            return
        if ticket.state is TicketState.COMMITTED:
            ticket.state = state
            ticket.end_message = message
            offer = ticket.offer
            self._actions.append(
                CancelLeg(
                    ticket_id=ticket_id,
                    request_id=offer.request_id,
                    attempt=offer.attempt,
                    choice_indices=offer.choice_indices,
                )
            )
        elif ticket.state.is_open:
            self._drop(ticket, state, message, now)

    def _drop(self, ticket: Ticket, state: TicketState, message: str, now: float) -> None:
        ticket.state = state
        ticket.end_message = message
        ticket.expires_at_s = now + self._memory_s
        if ticket.reservation_id is not None:
            ticket.quarantined = bool(ticket.open_streams)
            self._actions.append(
                Drop(
                    ticket_id=ticket.ticket_id,
                    reservation_id=ticket.reservation_id,
                    quarantine=ticket.quarantined,
                )
            )
