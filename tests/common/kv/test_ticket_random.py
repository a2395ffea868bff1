"""Random operations on the ticket machine: whatever comes in whatever order, every reservation is settled once."""

from contextlib import suppress

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common.errors import StaleTicketError, TransferError
from common.kv.block_map import GroupMap
from common.kv.ticket import (
    Admit,
    BlockRef,
    CancelLeg,
    Drop,
    EndQuarantine,
    RankCommit,
    Ticket,
    TicketOffer,
    TicketState,
    TransferReason,
)
from common.kv.ticket_table import TicketTable
from common.request import RequestId
from tests.support.engine import tiny_spec

BLOCK_BYTES = 64
INDEX = st.integers(0, 99)


class TicketMachine(RuleBasedStateMachine):
    """`settled` says what became of each reservation; `writers` holds the streams that may write to its blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.table = TicketTable(spec=tiny_spec(8), lease_s=10.0, memory_s=20.0)
        self.now = 0.0
        self.tickets: list[Ticket] = []
        self.streams: list[tuple[Ticket, int]] = []
        self.settled: dict[str, str] = {}
        self.num_reservations = 0

    def pick(self, index: int) -> Ticket:
        return self.tickets[index % len(self.tickets)]

    def carry_out(self) -> None:
        for action in self.table.drain_actions():
            if isinstance(action, CancelLeg):
                continue
            before = self.settled.get(action.reservation_id)
            writers = [stream for stream in self.streams if stream[0].ticket_id == action.ticket_id]
            if isinstance(action, Admit):
                assert before == "reserved"
                assert not writers, "a running request's blocks could be written"
                self.settled[action.reservation_id] = "running"
            elif isinstance(action, Drop):
                assert before == "reserved"
                assert action.quarantine == bool(writers)
                self.settled[action.reservation_id] = "quarantined" if action.quarantine else "freed"
            else:
                assert isinstance(action, EndQuarantine)
                assert before == "quarantined"
                assert not writers
                self.settled[action.reservation_id] = "freed"

    @rule()
    def offer(self) -> None:
        offer = TicketOffer(
            request_id=RequestId("r"),
            attempt=1,
            choice_indices=(0,),
            source_worker_id=None,
            reason=TransferReason.HANDOVER,
        )
        self.tickets.append(self.table.offer(offer, self.now))

    @precondition(lambda self: self.tickets)
    @rule(index=INDEX)
    def credit(self, index: int) -> None:
        ticket = self.pick(index)
        if ticket.state in (TicketState.CREDITED, TicketState.MAPPED, TicketState.SENDING, TicketState.COMMITTED):
            return
        self.num_reservations += 1
        reservation_id = f"res{self.num_reservations}"
        self.settled[reservation_id] = "reserved"
        with suppress(StaleTicketError):
            self.table.credit(
                ticket.ticket_id, reservation_id=reservation_id, credit_tokens=9, num_tokens=20, now=self.now
            )

    @precondition(lambda self: self.tickets)
    @rule(index=INDEX, num_present=st.integers(0, 3))
    def map(self, index: int, num_present: int) -> None:
        maps = (GroupMap(group_id=0, block_ids=(7, 8, 9), present=tuple(i < num_present for i in range(3))),)
        with suppress(StaleTicketError):
            self.table.map(self.pick(index).ticket_id, maps, self.now)

    @precondition(lambda self: self.tickets)
    @rule(index=INDEX, age=st.integers(0, 1), rank=st.integers(0, 1))
    def open_stream(self, index: int, age: int, rank: int) -> None:
        ticket = self.pick(index)
        with suppress(StaleTicketError):
            stream = self.table.open_stream(
                ticket.ticket_id, generation=ticket.generation - age, rank=rank, now=self.now
            )
            self.streams.append((ticket, stream))

    @precondition(lambda self: self.streams)
    @rule(index=INDEX, logical_block=st.integers(0, 3), whole=st.booleans())
    def place(self, index: int, logical_block: int, whole: bool) -> None:
        ticket, stream = self.streams[index % len(self.streams)]
        with suppress(StaleTicketError, TransferError):
            length = BLOCK_BYTES if whole else BLOCK_BYTES // 2
            ref = BlockRef(0, logical_block)
            block_id = self.table.place(ticket.ticket_id, stream, ref, offset=0, length=length, now=self.now)
            assert block_id == 7 + logical_block
            assert ticket.reservation_id is not None
            assert self.settled[ticket.reservation_id] == "reserved"

    @precondition(lambda self: self.streams)
    @rule(index=INDEX)
    def send_all_and_close(self, index: int) -> None:
        ticket, stream = self.streams.pop(index % len(self.streams))
        with suppress(StaleTicketError):
            for ref in list(ticket.received):
                self.table.place(ticket.ticket_id, stream, ref, offset=0, length=BLOCK_BYTES, now=self.now)
        self.table.close_stream(ticket.ticket_id, stream, self.now)

    @precondition(lambda self: self.tickets)
    @rule(index=INDEX, num_ranks=st.integers(1, 2), rank=st.integers(0, 1), wrong=st.sampled_from([0, 0, 0, 1]))
    def commit(self, index: int, num_ranks: int, rank: int, wrong: int) -> None:
        ticket = self.pick(index)
        checksums = dict.fromkeys(ticket.received, 5)
        commit = RankCommit(
            generation=ticket.generation,
            rank=rank,
            num_ranks=num_ranks,
            num_computed_tokens=20,
            checksums=checksums,
            first_tokens=(),
            attempt=1,
        )
        with suppress(StaleTicketError, TransferError):
            self.table.commit(ticket.ticket_id, commit, dict.fromkeys(checksums, 5 + wrong), self.now)

    @precondition(lambda self: self.tickets)
    @rule(index=INDEX, gently=st.booleans())
    def end(self, index: int, gently: bool) -> None:
        if gently:
            self.table.release(self.pick(index).ticket_id, self.now)
        else:
            self.table.abort(self.pick(index).ticket_id, "test", self.now)

    @rule(seconds=st.sampled_from([1.0, 5.0, 11.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.table.expire(self.now)

    @invariant()
    def every_action_fits_what_the_reservation_is(self) -> None:
        self.carry_out()
        self.table.check_integrity()
        for ticket in self.tickets:
            if ticket.reservation_id is not None and ticket.state.is_open:
                assert self.settled[ticket.reservation_id] == "reserved"

    def teardown(self) -> None:
        for ticket, stream in self.streams:
            self.table.close_stream(ticket.ticket_id, stream, self.now)
        self.streams.clear()
        self.table.expire(self.now + 1000)
        self.carry_out()
        self.table.expire(self.now + 2000)
        assert not list(self.table)
        assert set(self.settled.values()) <= {"running", "freed"}


TestTicketMachine = TicketMachine.TestCase
TestTicketMachine.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
