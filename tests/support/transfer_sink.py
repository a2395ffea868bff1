"""The sink of transfers in a test: a small pool, reservations over it, and the ticket table that is tested."""

from __future__ import annotations

from common.errors import SlipstreamError, StaleTicketError
from common.kv.block_map import GroupMap
from common.kv.source_ticket import KVReady
from common.kv.ticket import Admit, BlockRef, CancelLeg, Drop, EndQuarantine, RankCommit, TicketOffer, TransferReason
from common.kv.ticket_table import TicketTable
from common.request import RequestId
from tests.support.engine import tiny_spec
from tests.support.transfer_network import LEASE_S, Content, Stream, Transfer, TransferNetwork

BLOCK_BYTES = tiny_spec(8).groups[0].bytes_per_block
POOL_BLOCKS = 6


class SimulatedSink:
    """Does what the table wants done, and asserts that nothing is written or decoded that must not be."""

    def __init__(self, network: TransferNetwork) -> None:
        self._network = network
        self.life = 0
        self.restart()

    def restart(self) -> None:
        """A new life: all is forgotten, and nobody can write by an old stream."""
        self.life += 1
        self.table = TicketTable(spec=tiny_spec(8), lease_s=LEASE_S, memory_s=2 * LEASE_S)
        self.free = set(range(POOL_BLOCKS))
        self.reserved: dict[str, list[int]] = {}
        self.quarantined: dict[str, list[int]] = {}
        self.running: dict[str, list[int]] = {}
        self.memory: dict[int, Content] = {}
        self.by_reservation: dict[str, Transfer] = {}
        for stream in self._network.streams:
            stream.closed = True

    def reserve(self, number: int, *, num_blocks: int, num_present: int) -> Transfer:
        """Room for a transfer that has no source yet; its blocks have no places before they are mapped."""
        offer = TicketOffer(
            request_id=RequestId(f"r{number}"),
            attempt=1,
            choice_indices=(0,),
            source_worker_id=None,
            reason=TransferReason.HANDOVER,
        )
        ticket = self.table.offer(offer, self._network.now)
        transfer = Transfer(number, ticket.ticket_id, num_blocks, num_present, None)
        reservation_id = f"res{number}"
        self.by_reservation[reservation_id] = transfer
        self.reserved[reservation_id] = []
        self.table.credit(
            ticket.ticket_id,
            reservation_id=reservation_id,
            credit_tokens=9,
            num_tokens=num_blocks * 8,
            now=self._network.now,
        )
        return transfer

    def map(self, transfer: Transfer) -> tuple[GroupMap, ...]:
        """As the worker does it. Raises StaleTicketError; None of the blocks is taken when there are too few."""
        ticket = self.table.get(transfer.ticket_id)
        if ticket.generation:
            return ticket.maps
        assert ticket.reservation_id is not None
        if not ticket.state.is_open:
            raise StaleTicketError("ended")
        if len(self.free) < transfer.num_blocks:
            return ()
        block_ids = sorted(self.free)[: transfer.num_blocks]
        self.free.difference_update(block_ids)
        self.reserved[ticket.reservation_id] = block_ids
        present = tuple(logical < transfer.num_present for logical in range(transfer.num_blocks))
        maps = (GroupMap(group_id=0, block_ids=tuple(block_ids), present=present),)
        self.table.map(transfer.ticket_id, maps, self._network.now)
        return maps

    def write(self, stream: Stream, ref: BlockRef, content: Content) -> None:
        """A frame that has arrived, unless its stream is closed or of another life."""
        if stream.closed or stream.sink_life != self.life:
            return
        ticket_id, now = stream.transfer.ticket_id, self._network.now
        try:
            if stream.sink_stream is None:
                stream.sink_stream = self.table.open_stream(
                    ticket_id, generation=stream.transfer.generation, rank=0, now=now
                )
            block_id = self.table.place(ticket_id, stream.sink_stream, ref, offset=0, length=BLOCK_BYTES, now=now)
        except SlipstreamError:
            self.settle()
            self.close(stream)
            stream.closed = True
            return
        assert block_id not in self.free
        assert not any(block_id in blocks for blocks in self.running.values())
        self.memory[block_id] = content

    def commit(self, transfer: Transfer, ready: KVReady) -> None:
        """Raises what the table raises."""
        checksums = {ref: hash(content) for ref, content in transfer.sent.items()}
        maps = self.table.get(transfer.ticket_id).maps
        here = {ref: hash(self.memory.get(maps[0].block_ids[ref.logical_block])) for ref in checksums if maps}
        commit = RankCommit(
            generation=transfer.generation,
            rank=0,
            num_ranks=1,
            num_computed_tokens=ready.num_computed_tokens,
            checksums=checksums,
            first_tokens=ready.first_tokens,
            attempt=ready.attempt,
        )
        self.table.commit(transfer.ticket_id, commit, here, self._network.now)

    def abort(self, transfer: Transfer, reason: str) -> None:
        self.table.abort(transfer.ticket_id, reason, self._network.now)
        self.settle()

    def close(self, stream: Stream) -> None:
        if stream.sink_stream is not None and not stream.closed:
            stream.closed = True
            self.table.close_stream(stream.transfer.ticket_id, stream.sink_stream, self._network.now)
            self.settle()

    def expire(self) -> None:
        self.table.expire(self._network.now)
        self.settle()

    def settle(self) -> None:
        """Does what the table has queued."""
        for action in self.table.drain_actions():
            match action:
                case Admit():
                    self._admit(action.reservation_id)
                case Drop():
                    self._drop(action.reservation_id, quarantine=action.quarantine)
                case EndQuarantine():
                    assert not self._writers_of(self.by_reservation[action.reservation_id])
                    self.free.update(self.quarantined.pop(action.reservation_id))
                case CancelLeg():
                    for reservation_id, transfer in self.by_reservation.items():
                        if transfer.ticket_id == action.ticket_id:
                            self.free.update(self.running.pop(reservation_id, ()))

    def check_integrity(self) -> None:
        self.table.check_integrity()
        held = [*self.reserved.values(), *self.quarantined.values(), *self.running.values(), list(self.free)]
        assert sorted(block for blocks in held for block in blocks) == list(range(POOL_BLOCKS)), "a block leaked"

    def check_idle(self) -> None:
        assert not self.quarantined
        assert not self.reserved
        assert not self.table.num_open

    def _admit(self, reservation_id: str) -> None:
        blocks = self.running[reservation_id] = self.reserved.pop(reservation_id)
        transfer = self.by_reservation[reservation_id]
        for logical, block_id in enumerate(blocks):
            if logical >= transfer.num_present:
                assert self.memory.get(block_id) == (transfer.number, logical), "decoded on wrong KV"
        assert not self._writers_of(transfer), "a running request's blocks may be written"

    def _drop(self, reservation_id: str, *, quarantine: bool) -> None:
        blocks = self.reserved.pop(reservation_id)
        writers = self._writers_of(self.by_reservation[reservation_id])
        if quarantine:
            self.quarantined[reservation_id] = blocks
            self._network.messages += [lambda stream=stream: self.close(stream) for stream in writers]
        else:
            assert not writers
            self.free.update(blocks)

    def _writers_of(self, transfer: Transfer) -> list[Stream]:
        return [
            one
            for one in self._network.streams
            if one.transfer is transfer and one.sink_stream is not None and not one.closed
        ]
