"""Both ends of transfers over a network that reorders, repeats, delays and loses, with aborts and restarts anywhere.

Whatever happens: a block is never free while it may be written, none leaks, nothing is decoded on KV that is not all
there, no block is given back at the source while it is read, and both ends end.

One file, for it is one machine: hypothesis wants all of its rules in one class.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common.errors import SlipstreamError, StaleTicketError, UnavailableError
from common.kv.block_map import GroupMap
from common.kv.source_ticket import AskMap, Commit, End, KVReady, Push, SourceBlock, SourceTicket, Stop
from common.kv.ticket import Admit, BlockRef, CancelLeg, Drop, EndQuarantine, RankCommit, TicketOffer, TransferReason
from common.kv.ticket_table import TicketTable
from common.request import RequestId
from tests.support.engine import tiny_spec

LEASE_S = 10.0
BLOCK_BYTES = tiny_spec(8).groups[0].bytes_per_block
POOL_BLOCKS = 6
INDEX = st.integers(0, 999)
# Of what ends a transfer for good: often enough, but not so often that hardly any comes to its end.
SELDOM = st.sampled_from([False] * 5 + [True])

Content = tuple[int, int]  # the transfer and the logical block whose KV it is


@dataclass(eq=False)
class Stream:
    """One push. `unread` are blocks that the source has not read yet, `frames` those on their way."""

    transfer: Transfer
    unread: deque[SourceBlock]
    frames: deque[tuple[BlockRef, Content]] = field(default_factory=deque)
    sink_stream: int | None = None
    sink_life: int = 0
    stopped: bool = False  # at the source: nothing more is read
    closed: bool = False  # at the sink: nothing more is written


@dataclass(eq=False)
class Transfer:
    """`source` is None once its process has died."""

    number: int
    ticket_id: str
    num_blocks: int
    num_present: int
    source: SourceTicket | None
    num_computed: int = 0
    stream: Stream | None = None
    ended: End | None = None
    generation: int = 0
    sent: dict[BlockRef, Content] = field(default_factory=dict)


class TransferMachine(RuleBasedStateMachine):
    """A sink with a small pool, and sources that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.transfers: list[Transfer] = []
        self.streams: list[Stream] = []
        self.messages: list[Callable[[], None]] = []
        self.life = 0
        self.spoil: str | None = None
        self.start_sink()

    # The sink: a pool, reservations over it, and the table.

    def start_sink(self) -> None:
        """A new life: all is forgotten, and nobody can write by an old stream."""
        self.life += 1
        self.table = TicketTable(spec=tiny_spec(8), lease_s=LEASE_S, memory_s=2 * LEASE_S)
        self.free = set(range(POOL_BLOCKS))
        self.reserved: dict[str, list[int]] = {}
        self.quarantined: dict[str, list[int]] = {}
        self.running: dict[str, list[int]] = {}
        self.memory: dict[int, Content] = {}
        self.by_reservation: dict[str, Transfer] = {}
        for stream in self.streams:
            stream.closed = True

    def settle_sink(self) -> None:
        for action in self.table.drain_actions():
            match action:
                case Admit():
                    blocks = self.running[action.reservation_id] = self.reserved.pop(action.reservation_id)
                    transfer = self.by_reservation[action.reservation_id]
                    for logical, block_id in enumerate(blocks):
                        if logical >= transfer.num_present:
                            assert self.memory.get(block_id) == (transfer.number, logical), "decoded on wrong KV"
                    assert not self.writers_of(transfer), "a running request's blocks may be written"
                case Drop():
                    blocks = self.reserved.pop(action.reservation_id)
                    if action.quarantine:
                        self.quarantined[action.reservation_id] = blocks
                        for stream in self.writers_of(self.by_reservation[action.reservation_id]):
                            self.messages.append(lambda stream=stream: self.close_at_sink(stream))
                    else:
                        assert not self.writers_of(self.by_reservation[action.reservation_id])
                        self.free.update(blocks)
                case EndQuarantine():
                    assert not self.writers_of(self.by_reservation[action.reservation_id])
                    self.free.update(self.quarantined.pop(action.reservation_id))
                case CancelLeg():
                    for reservation_id, transfer in self.by_reservation.items():
                        if transfer.ticket_id == action.ticket_id:
                            self.free.update(self.running.pop(reservation_id, ()))

    def writers_of(self, transfer: Transfer) -> list[Stream]:
        return [
            one for one in self.streams if one.transfer is transfer and one.sink_stream is not None and not one.closed
        ]

    def map_at_sink(self, transfer: Transfer) -> tuple[GroupMap, ...]:
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
        self.table.map(transfer.ticket_id, maps, self.now)
        return maps

    def close_at_sink(self, stream: Stream) -> None:
        if stream.sink_stream is not None and not stream.closed:
            stream.closed = True
            self.table.close_stream(stream.transfer.ticket_id, stream.sink_stream, self.now)
            self.settle_sink()

    # A source, and what it asks for.

    def settle_source(self, transfer: Transfer) -> None:
        source = transfer.source
        if source is None:
            return
        for action in source.drain_actions():
            match action:
                case AskMap():
                    self.messages.append(lambda: self.take_map_request(transfer, source))
                case Push(blocks=blocks):
                    assert transfer.stream is None or transfer.stream.stopped or not transfer.stream.unread
                    transfer.stream = Stream(transfer, deque(blocks), sink_life=self.life)
                    self.streams.append(transfer.stream)
                case Commit(ready=ready):
                    self.messages.append(lambda ready=ready: self.take_commit(transfer, source, ready))
                case Stop():
                    self.messages.append(lambda: self.take_failure(transfer))
                    if transfer.stream is not None and not transfer.stream.stopped:
                        self.messages.append(lambda stream=transfer.stream: self.stop_at_source(stream))
                case End():
                    assert transfer.ended is None, "it ended twice"
                    assert transfer.stream is None or transfer.stream.stopped or not transfer.stream.unread
                    transfer.ended = action

    def stop_at_source(self, stream: Stream) -> None:
        if not stream.stopped:
            stream.stopped = True
            stream.unread.clear()
            if stream.transfer.source is not None:
                stream.transfer.source.push_ended(self.now)
                self.settle_source(stream.transfer)

    def take_map_request(self, transfer: Transfer, source: SourceTicket) -> None:
        maps: tuple[GroupMap, ...] = ()
        error: SlipstreamError | None = None
        try:
            maps = self.map_at_sink(transfer)
        except SlipstreamError as raised:
            error = raised
        self.settle_sink()

        def answer() -> None:
            if transfer.source is not source:
                return
            if error is not None:
                source.failed(error, self.now)
            elif maps:
                transfer.generation = 1
                source.mapped(maps, self.now)
            else:
                source.map_refused(self.now, answered=True)
            self.settle_source(transfer)

        self.messages.append(answer)

    def take_commit(self, transfer: Transfer, source: SourceTicket, ready: KVReady) -> None:
        error: SlipstreamError | None = None
        try:
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
            self.table.commit(transfer.ticket_id, commit, here, self.now)
        except SlipstreamError as raised:
            error = raised
        self.settle_sink()

        def answer() -> None:
            if transfer.source is not source:
                return
            if error is None:
                source.committed(self.now)
            else:
                source.commit_refused(error, self.now)
            self.settle_source(transfer)

        self.messages.append(answer)

    def take_failure(self, transfer: Transfer) -> None:
        self.table.abort(transfer.ticket_id, "the source gave up", self.now)
        self.settle_sink()

    # What may happen.

    @rule(num_blocks=st.integers(1, 3), num_present=st.integers(0, 1), late=st.booleans())
    def reserve(self, num_blocks: int, num_present: int, late: bool) -> None:
        if sum(one.ended is None for one in self.transfers) > 3:
            return
        number = len(self.transfers)
        offer = TicketOffer(
            request_id=RequestId(f"r{number}"),
            attempt=1,
            choice_indices=(0,),
            source_worker_id=None,
            reason=TransferReason.HANDOVER,
        )
        ticket = self.table.offer(offer, self.now)
        transfer = Transfer(number, ticket.ticket_id, num_blocks, num_present, None)
        reservation_id = f"res{number}"
        self.by_reservation[reservation_id] = transfer
        self.reserved[reservation_id] = []
        self.table.credit(
            ticket.ticket_id, reservation_id=reservation_id, credit_tokens=9, num_tokens=num_blocks * 8, now=self.now
        )
        maps: tuple[GroupMap, ...] | None = None
        if not late:
            maps = self.map_at_sink(transfer) or None
            transfer.generation = int(maps is not None)
        self.transfers.append(transfer)
        transfer.source = SourceTicket(choice_indices=(0,), maps=maps, lease_s=LEASE_S)

    @precondition(lambda self: self.transfers)
    @rule(index=INDEX)
    def compute(self, index: int) -> None:
        self.compute_next(self.transfers[index % len(self.transfers)])

    def compute_next(self, transfer: Transfer) -> None:
        source = transfer.source
        if source is None or transfer.ended is not None:
            return
        if transfer.num_computed < transfer.num_blocks:
            block = (BlockRef(0, transfer.num_computed), 100 + transfer.num_computed)
            transfer.num_computed += 1
            source.computed([block], self.now)
        else:
            source.handed_over(
                KVReady(num_computed_tokens=transfer.num_blocks * 8, first_tokens=(), attempt=1), self.now
            )
        self.settle_source(transfer)

    @precondition(lambda self: self.transfers)
    @rule(index=INDEX)
    def ask_map(self, index: int) -> None:
        transfer = self.transfers[index % len(self.transfers)]
        if transfer.source is not None:
            transfer.source.ask_map(self.now)
            self.settle_source(transfer)

    @precondition(lambda self: self.transfers)
    @rule(index=INDEX, num_steps=st.integers(1, 40))
    def go_on(self, index: int, num_steps: int) -> None:
        """As it goes when nothing goes wrong: without it chance would hardly ever come to a commit."""
        transfer = self.transfers[index % len(self.transfers)]
        for _ in range(num_steps):
            stream = transfer.stream
            if stream is not None and not stream.stopped and stream.unread:
                self.read(stream)
            elif stream is not None and stream.frames:
                self.write(stream)
            elif stream is not None and not stream.stopped:
                self.end(stream)
            elif self.messages:
                self.messages.pop(0)()
            else:
                self.compute_next(transfer)

    @precondition(lambda self: self.messages)
    @rule(index=INDEX)
    def deliver(self, index: int) -> None:
        self.messages.pop(index % len(self.messages))()

    @precondition(lambda self: self.messages)
    @rule(index=INDEX)
    def deliver_and_keep(self, index: int) -> None:
        """It comes twice: the second time whenever."""
        self.messages[index % len(self.messages)]()

    @precondition(lambda self: any(one.ended is None for one in self.transfers))
    @rule(index=INDEX, really=SELDOM)
    def lose_the_connection(self, index: int, really: bool) -> None:
        """What a source waits for is not answered: it asks again, or gives up by its lease."""
        if not really:
            return
        waiting = [one for one in self.transfers if one.ended is None and one.source is not None]
        if not waiting:
            return
        transfer = waiting[index % len(waiting)]
        stream = transfer.stream
        assert transfer.source is not None
        if stream is not None and not stream.stopped and stream.unread:
            stream.stopped = True
            stream.unread.clear()
            transfer.source.push_failed(UnavailableError("lost"), self.now)
        else:
            transfer.source.commit_lost(self.now)
        self.settle_source(transfer)

    @precondition(lambda self: any(one.unread and not one.stopped for one in self.streams))
    @rule(index=INDEX)
    def read_block(self, index: int) -> None:
        reading = [one for one in self.streams if one.unread and not one.stopped]
        self.read(reading[index % len(reading)])

    def read(self, stream: Stream) -> None:
        transfer = stream.transfer
        if transfer.source is None:
            return
        assert transfer.ended is None, "a block is read after it was given back"
        ref, _ = stream.unread.popleft()
        content = transfer.sent[ref] = (transfer.number, ref.logical_block)
        stream.frames.append((ref, content))

    @rule(how=st.sampled_from(["lost", "changed"]))
    def spoil_next_block(self, how: str) -> None:
        """The next frame that reaches the sink is lost or changed, and nobody is told."""
        self.spoil = how

    @precondition(lambda self: any(one.frames for one in self.streams))
    @rule(index=INDEX)
    def write_block(self, index: int) -> None:
        """The next frame of a stream reaches the sink."""
        moving = [one for one in self.streams if one.frames]
        self.write(moving[index % len(moving)])

    def write(self, stream: Stream) -> None:
        ref, content = stream.frames.popleft()
        spoil, self.spoil = self.spoil, None
        if spoil == "lost":
            return
        if spoil == "changed":
            content = (-1, ref.logical_block)
        if stream.closed or stream.sink_life != self.life:
            return
        transfer = stream.transfer
        try:
            if stream.sink_stream is None:
                stream.sink_stream = self.table.open_stream(
                    transfer.ticket_id, generation=transfer.generation, rank=0, now=self.now
                )
            block_id = self.table.place(
                transfer.ticket_id, stream.sink_stream, ref, offset=0, length=BLOCK_BYTES, now=self.now
            )
        except SlipstreamError:
            self.settle_sink()
            self.close_at_sink(stream)
            stream.closed = True
            return
        assert block_id not in self.free
        assert not any(block_id in blocks for blocks in self.running.values())
        self.memory[block_id] = content

    @precondition(lambda self: any(not one.unread and not one.frames and not one.stopped for one in self.streams))
    @rule(index=INDEX)
    def end_stream(self, index: int) -> None:
        """All was sent and written: the sink ends the stream, and the source hears of it."""
        done = [one for one in self.streams if not one.unread and not one.frames and not one.stopped]
        self.end(done[index % len(done)])

    def end(self, stream: Stream) -> None:
        transfer = stream.transfer
        refused = (stream.closed and stream.sink_life == self.life) or stream.sink_life != self.life
        self.close_at_sink(stream)
        stream.stopped = stream.closed = True
        if transfer.source is not None:
            if refused:
                transfer.source.push_failed(StaleTicketError("refused"), self.now)
            else:
                transfer.source.push_ended(self.now)
            self.settle_source(transfer)

    @precondition(lambda self: any(one.stopped and not one.closed for one in self.streams))
    @rule(index=INDEX)
    def notice_broken_stream(self, index: int) -> None:
        broken = [one for one in self.streams if one.stopped and not one.closed]
        stream = broken[index % len(broken)]
        self.close_at_sink(stream)
        stream.closed = True

    @precondition(lambda self: self.transfers)
    @rule(index=INDEX, at_sink=st.booleans(), really=SELDOM)
    def abort(self, index: int, at_sink: bool, really: bool) -> None:
        """The router gives it up, at either end."""
        if not really:
            return
        transfer = self.transfers[index % len(self.transfers)]
        if at_sink:
            self.table.abort(transfer.ticket_id, "aborted", self.now)
            self.settle_sink()
        elif transfer.source is not None:
            transfer.source.give_up("aborted", self.now)
            self.settle_source(transfer)

    @precondition(lambda self: self.transfers)
    @rule(index=INDEX, really=SELDOM)
    def kill_source(self, index: int, really: bool) -> None:
        if not really:
            return
        transfer = self.transfers[index % len(self.transfers)]
        transfer.source = None
        if transfer.stream is not None and not transfer.stream.stopped:
            transfer.stream.stopped = True
            transfer.stream.unread.clear()

    @rule(really=SELDOM)
    def restart_sink(self, really: bool) -> None:
        if really:
            self.start_sink()

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 4.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.table.expire(self.now)
        self.settle_sink()
        for transfer in self.transfers:
            if transfer.source is not None:
                transfer.source.expire(self.now)
                self.settle_source(transfer)

    @invariant()
    def the_books_agree(self) -> None:
        self.table.check_integrity()
        held = [*self.reserved.values(), *self.quarantined.values(), *self.running.values(), list(self.free)]
        assert sorted(block for blocks in held for block in blocks) == list(range(POOL_BLOCKS)), "a block leaked"
        for transfer in self.transfers:
            if transfer.source is not None:
                transfer.source.check_integrity()

    def teardown(self) -> None:
        """Nobody says anything any more: both ends come to their end by themselves."""
        self.messages.clear()
        for stream in self.streams:
            if not stream.stopped and stream.unread and stream.transfer.source is not None:
                stream.stopped = True
                stream.unread.clear()
                stream.transfer.source.push_failed(UnavailableError("the network is gone"), self.now)
                self.settle_source(stream.transfer)
            self.close_at_sink(stream)
        for _ in range(3):
            self.wait(LEASE_S + 1)
            for message in list(self.messages):
                with suppress(SlipstreamError):
                    message()
            self.messages.clear()
        for transfer in self.transfers:
            if transfer.source is not None and transfer.source.is_waiting:
                assert transfer.ended is not None, "a source waits for ever"
        assert not self.quarantined
        assert not self.reserved
        assert not self.table.num_open


TestTransferMachine = TransferMachine.TestCase
TestTransferMachine.settings = settings(
    max_examples=200,
    stateful_step_count=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
