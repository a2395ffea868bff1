import dataclasses
import re
from collections.abc import Mapping

import pytest

from common.errors import StaleTicketError, TransferError
from common.kv.block_map import GroupMap
from common.kv.first_token import FirstToken
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

BLOCK_BYTES = 8 * 2 * 4  # of tiny_spec(8): block size, keys and values, float32
MAPS = (GroupMap(group_id=0, block_ids=(5, 3, 9), present=(True, False, False)),)
SENT = {BlockRef(0, 1): 111, BlockRef(0, 2): 222}
FIRST_TOKENS = (FirstToken(choice_index=0, token_id=4, finished=False),)


def make_table() -> TicketTable:
    return TicketTable(spec=tiny_spec(8), lease_s=10.0, memory_s=60.0)


def make_offer(request_id: str = "r") -> TicketOffer:
    return TicketOffer(
        request_id=RequestId(request_id),
        attempt=1,
        choice_indices=(0,),
        source_worker_id=None,
        reason=TransferReason.HANDOVER,
    )


def make_commit(
    ticket: Ticket, *, rank: int = 0, num_ranks: int = 1, checksums: Mapping[BlockRef, int] = SENT
) -> RankCommit:
    return RankCommit(
        generation=ticket.generation,
        rank=rank,
        num_ranks=num_ranks,
        num_computed_tokens=20,
        checksums=checksums,
        first_tokens=FIRST_TOKENS if rank == 0 else (),
        attempt=1,
    )


def credited(table: TicketTable) -> Ticket:
    ticket = table.offer(make_offer(), 0.0)
    table.credit(ticket.ticket_id, reservation_id="res", credit_tokens=40, num_tokens=20, now=0.0)
    return ticket


def mapped(table: TicketTable) -> Ticket:
    ticket = credited(table)
    table.map(ticket.ticket_id, MAPS, 0.0)
    return ticket


def push(table: TicketTable, ticket: Ticket, *, rank: int = 0) -> int:
    """A stream that delivers everything, still open."""
    stream = table.open_stream(ticket.ticket_id, generation=ticket.generation, rank=rank, now=1.0)
    for ref in SENT:
        for offset in (0, 32):
            table.place(ticket.ticket_id, stream, ref, offset=offset, length=32, now=1.0)
    return stream


def push_all(table: TicketTable, ticket: Ticket) -> None:
    table.close_stream(ticket.ticket_id, push(table, ticket), 1.0)


def test_the_usual_path_ends_in_an_admission() -> None:
    table = make_table()
    ticket = table.offer(make_offer(), 0.0)
    states = [ticket.state]
    table.credit(ticket.ticket_id, reservation_id="res", credit_tokens=40, num_tokens=20, now=0.0)
    states.append(ticket.state)
    assert table.map(ticket.ticket_id, MAPS, 0.0) == 1
    states.append(ticket.state)
    stream = table.open_stream(ticket.ticket_id, generation=1, rank=0, now=0.0)
    states.append(ticket.state)
    assert table.place(ticket.ticket_id, stream, BlockRef(0, 1), offset=0, length=BLOCK_BYTES, now=0.0) == 3
    assert table.place(ticket.ticket_id, stream, BlockRef(0, 2), offset=0, length=BLOCK_BYTES, now=0.0) == 9
    table.close_stream(ticket.ticket_id, stream, 0.0)
    assert table.commit(ticket.ticket_id, make_commit(ticket), SENT, 0.0) is TicketState.COMMITTED
    assert [*states, ticket.state] == ["offered", "credited", "mapped", "sending", "committed"]
    assert table.drain_actions() == [
        Admit(ticket_id=ticket.ticket_id, reservation_id="res", first_tokens=FIRST_TOKENS, attempt=1)
    ]
    assert table.drain_actions() == []


def test_ids_can_not_be_guessed() -> None:
    table = make_table()
    ids = {table.offer(make_offer(), 0.0).ticket_id for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch(r"[0-9a-f]{32}", ticket_id) for ticket_id in ids)


def test_nothing_to_send_needs_no_stream() -> None:
    table = make_table()
    ticket = credited(table)
    table.map(ticket.ticket_id, (GroupMap(group_id=0, block_ids=(5, 3), present=(True, True)),), 0.0)
    table.commit(ticket.ticket_id, make_commit(ticket, checksums={}), {}, 0.0)
    assert ticket.state is TicketState.COMMITTED


def test_repeating_a_commit_changes_nothing() -> None:
    table = make_table()
    ticket = mapped(table)
    push_all(table, ticket)
    for _ in range(2):
        assert table.commit(ticket.ticket_id, make_commit(ticket), SENT, 1.0) is TicketState.COMMITTED
    assert len(table.drain_actions()) == 1


def test_a_transfer_is_complete_when_every_rank_has_committed() -> None:
    table = make_table()
    ticket = mapped(table)
    push_all(table, ticket)
    assert table.commit(ticket.ticket_id, make_commit(ticket, num_ranks=2), SENT, 1.0) is TicketState.SENDING
    assert table.drain_actions() == []
    other = make_commit(ticket, rank=1, num_ranks=2)
    assert table.commit(ticket.ticket_id, other, SENT, 1.0) is TicketState.COMMITTED
    assert isinstance(table.drain_actions()[0], Admit)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"checksums": {BlockRef(0, 1): 111}}, "blocks were sent"),
        ({"checksums": {**SENT, BlockRef(0, 0): 1}}, "blocks were sent"),
        ({"checksums": {**SENT, BlockRef(0, 2): 223}}, "checksum"),
        ({"num_computed_tokens": 19}, "19 tokens"),
        ({"rank": 1}, "rank 1 is not one of 1"),
    ],
)
def test_a_commit_that_does_not_match_fails_the_ticket(change: dict[str, object], message: str) -> None:
    table = make_table()
    ticket = mapped(table)
    push_all(table, ticket)
    commit = dataclasses.replace(make_commit(ticket), **change)
    with pytest.raises(TransferError, match=message):
        table.commit(ticket.ticket_id, commit, SENT, 1.0)
    assert ticket.state is TicketState.FAILED
    assert table.drain_actions() == [Drop(ticket_id=ticket.ticket_id, reservation_id="res", quarantine=False)]


def test_bytes_that_never_came_fail_the_commit() -> None:
    table = make_table()
    ticket = mapped(table)
    stream = table.open_stream(ticket.ticket_id, generation=1, rank=0, now=1.0)
    table.place(ticket.ticket_id, stream, BlockRef(0, 1), offset=0, length=BLOCK_BYTES, now=1.0)
    table.place(ticket.ticket_id, stream, BlockRef(0, 2), offset=32, length=32, now=1.0)
    table.close_stream(ticket.ticket_id, stream, 1.0)
    with pytest.raises(TransferError, match="have not arrived"):
        table.commit(ticket.ticket_id, make_commit(ticket), SENT, 1.0)


def test_a_commit_while_its_stream_is_open_fails() -> None:
    table = make_table()
    ticket = mapped(table)
    stream = push(table, ticket)
    with pytest.raises(TransferError, match="still open"):
        table.commit(ticket.ticket_id, make_commit(ticket), SENT, 1.0)
    assert table.drain_actions() == [Drop(ticket_id=ticket.ticket_id, reservation_id="res", quarantine=True)]
    table.close_stream(ticket.ticket_id, stream, 1.0)
    assert table.drain_actions() == [EndQuarantine(ticket_id=ticket.ticket_id, reservation_id="res")]


@pytest.mark.parametrize(
    ("ref", "offset", "length"),
    [
        (BlockRef(0, 0), 0, 8),  # present already
        (BlockRef(0, 3), 0, 8),  # past the end
        (BlockRef(1, 1), 0, 8),  # no such group
        (BlockRef(0, 1), 60, 8),
        (BlockRef(0, 1), -1, 8),
        (BlockRef(0, 1), 0, 0),
    ],
)
def test_bytes_that_nobody_asked_for_fail_the_ticket(ref: BlockRef, offset: int, length: int) -> None:
    table = make_table()
    ticket = mapped(table)
    stream = table.open_stream(ticket.ticket_id, generation=1, rank=0, now=1.0)
    with pytest.raises(TransferError):
        table.place(ticket.ticket_id, stream, ref, offset=offset, length=length, now=1.0)
    assert ticket.state is TicketState.FAILED
    assert table.drain_actions() == [Drop(ticket_id=ticket.ticket_id, reservation_id="res", quarantine=True)]


def test_an_aborted_ticket_is_quarantined_until_its_last_stream_ends() -> None:
    table = make_table()
    ticket = mapped(table)
    streams = [table.open_stream(ticket.ticket_id, generation=1, rank=rank, now=1.0) for rank in (0, 1)]
    table.abort(ticket.ticket_id, "client went away", 1.0)
    assert table.drain_actions() == [Drop(ticket_id=ticket.ticket_id, reservation_id="res", quarantine=True)]
    with pytest.raises(StaleTicketError, match="client went away"):
        table.place(ticket.ticket_id, streams[0], BlockRef(0, 1), offset=0, length=8, now=1.0)
    table.close_stream(ticket.ticket_id, streams[0], 1.0)
    assert table.drain_actions() == []
    table.close_stream(ticket.ticket_id, streams[1], 1.0)
    table.close_stream(ticket.ticket_id, streams[1], 1.0)
    assert table.drain_actions() == [EndQuarantine(ticket_id=ticket.ticket_id, reservation_id="res")]


@pytest.mark.parametrize("make", [credited, mapped])
def test_abort_is_legal_in_any_state_and_idempotent(make: object) -> None:
    table = make_table()
    ticket = make(table)  # type: ignore[operator]
    for _ in range(2):
        table.abort(ticket.ticket_id, "no", 1.0)
    assert table.drain_actions() == [Drop(ticket_id=ticket.ticket_id, reservation_id="res", quarantine=False)]
    table.abort("never heard of", "no", 1.0)
    assert table.drain_actions() == []


def test_an_offer_that_is_aborted_has_nothing_to_drop() -> None:
    table = make_table()
    ticket = table.offer(make_offer(), 0.0)
    table.abort(ticket.ticket_id, "no", 0.0)
    assert table.drain_actions() == []
    with pytest.raises(StaleTicketError):
        table.credit(ticket.ticket_id, reservation_id="late", credit_tokens=1, num_tokens=1, now=0.0)
    assert table.drain_actions() == [Drop(ticket_id=ticket.ticket_id, reservation_id="late", quarantine=False)]


@pytest.mark.parametrize("end", ["abort", "release"])
def test_ending_a_committed_ticket_cancels_what_runs(end: str) -> None:
    table = make_table()
    ticket = mapped(table)
    push_all(table, ticket)
    table.commit(ticket.ticket_id, make_commit(ticket), SENT, 1.0)
    table.drain_actions()
    if end == "abort":
        table.abort(ticket.ticket_id, "no", 1.0)
    else:
        table.release(ticket.ticket_id, 1.0)
    assert table.drain_actions() == [
        CancelLeg(ticket_id=ticket.ticket_id, request_id=RequestId("r"), attempt=1, choice_indices=(0,))
    ]
    with pytest.raises(StaleTicketError):
        table.commit(ticket.ticket_id, make_commit(ticket), SENT, 1.0)


def test_another_generation_or_attempt_is_stale() -> None:
    table = make_table()
    ticket = mapped(table)
    with pytest.raises(StaleTicketError, match="generation"):
        table.open_stream(ticket.ticket_id, generation=0, rank=0, now=1.0)
    with pytest.raises(StaleTicketError, match="attempt"):
        table.commit(ticket.ticket_id, dataclasses.replace(make_commit(ticket), attempt=2), SENT, 1.0)
    assert ticket.state is TicketState.MAPPED


def test_mapping_anew_discards_what_an_earlier_source_sent() -> None:
    table = make_table()
    ticket = mapped(table)
    stream = push(table, ticket)
    old_commit = make_commit(ticket)
    with pytest.raises(StaleTicketError, match="still open"):
        table.map(ticket.ticket_id, MAPS, 1.0)
    table.close_stream(ticket.ticket_id, stream, 1.0)
    assert table.map(ticket.ticket_id, MAPS, 1.0) == 2
    with pytest.raises(StaleTicketError, match="generation"):
        table.commit(ticket.ticket_id, old_commit, SENT, 1.0)
    with pytest.raises(TransferError, match="have not arrived"):
        table.commit(ticket.ticket_id, make_commit(ticket), SENT, 1.0)


def test_a_lease_that_nobody_renews_expires() -> None:
    table = make_table()
    ticket = mapped(table)
    table.touch(ticket.ticket_id, 5.0)
    assert table.expire(14.9) == []
    assert table.expire(15.0) == [ticket]
    assert ticket.state is TicketState.EXPIRED
    assert table.drain_actions() == [Drop(ticket_id=ticket.ticket_id, reservation_id="res", quarantine=False)]
    with pytest.raises(StaleTicketError, match="no word"):
        table.touch(ticket.ticket_id, 15.0)


def test_an_expired_ticket_is_remembered_for_a_while_then_forgotten() -> None:
    table = make_table()
    ticket = mapped(table)
    stream = push(table, ticket)
    table.expire(100.0)
    table.expire(1000.0)
    assert table.get(ticket.ticket_id) is ticket, "its stream is open"
    table.close_stream(ticket.ticket_id, stream, 1000.0)
    assert [type(action) for action in table.drain_actions()] == [Drop, EndQuarantine]
    table.expire(1060.0)
    with pytest.raises(StaleTicketError, match="unknown"):
        table.get(ticket.ticket_id)


def test_a_committed_ticket_does_not_expire() -> None:
    table = make_table()
    ticket = mapped(table)
    push_all(table, ticket)
    table.commit(ticket.ticket_id, make_commit(ticket), SENT, 1.0)
    table.drain_actions()
    assert table.expire(1e9) == []
    assert table.drain_actions() == []


def test_unmapped_tickets_take_no_stream() -> None:
    table = make_table()
    ticket = credited(table)
    with pytest.raises(StaleTicketError, match="not mapped"):
        table.open_stream(ticket.ticket_id, generation=0, rank=0, now=1.0)
    offered = table.offer(make_offer(), 0.0)
    with pytest.raises(StaleTicketError, match="no credit"):
        table.map(offered.ticket_id, MAPS, 0.0)
