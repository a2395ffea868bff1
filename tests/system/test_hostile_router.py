"""A router that is none: attached to workers as routers are, with real tickets, it does what it should not.

An honest caller asks beside it, and is answered as ever.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from protos import transfer_pb2, worker_pb2, worker_pb2_grpc
from tests.support.hostile_fleet import CALL_TIMEOUT_S, FUZZ, Fleet, Honest, HostileRouter, leg, merged, send
from tests.support.hostile_messages import messages


def hostile(message_type: Any) -> st.SearchStrategy[Any]:
    """Some fields of a message; None: leave it as it is."""
    return messages(message_type.DESCRIPTOR, {}, depth=2) | st.just(message_type())


@pytest.mark.parametrize("process", ["prefill", "decode"])
def test_a_hostile_router(fleet: Fleet, honest: Honest, unharmed: None, process: str) -> None:
    numbers = itertools.count()

    @settings(max_examples=40, **FUZZ)
    @given(parts=st.lists(st.tuples(hostile(worker_pb2.AttachRequest), hostile(worker_pb2.Leg)), max_size=4))
    def attack(parts: list[tuple[Any, Any]]) -> None:
        number = next(numbers)
        with HostileRouter(fleet, process) as router:
            for index, (request, changed) in enumerate(parts):
                router.send(request)
                submit = worker_pb2.Submit(leg=merged(leg(f"{number}-{index}"), changed))
                router.send(worker_pb2.AttachRequest(submit=submit))
            router.settle(f"{number}-last")

    attack()
    honest.check()


TRANSFER_CALLS = (
    ("KvTransfer", "Map", transfer_pb2.MapRequest),
    ("DecodeWorker", "Abort", worker_pb2.AbortRequest),
    ("DecodeWorker", "Release", worker_pb2.ReleaseRequest),
    ("KvTransfer", "Push", transfer_pb2.PushFrame),
    ("KvTransfer", "Commit", transfer_pb2.CommitRequest),
    ("KvTransfer", "Fail", transfer_pb2.FailRequest),
)


def calls() -> st.SearchStrategy[Any]:
    return st.one_of(
        [st.tuples(st.just(service), st.just(name), hostile(kind)) for service, name, kind in TRANSFER_CALLS]
    )


def test_hostile_use_of_real_tickets(fleet: Fleet, honest: Honest, unharmed: None) -> None:
    """Tickets that were reserved for the hostile router, abused in every state they come to."""
    numbers = itertools.count()
    decode = worker_pb2_grpc.DecodeWorkerStub(fleet.channels["decode"])

    @settings(max_examples=60, **FUZZ)
    @given(changed=hostile(worker_pb2.ReserveRequest), misuses=st.lists(calls(), max_size=6))
    def attack(changed: Any, misuses: list[tuple[str, str, Any]]) -> None:
        number = next(numbers)
        with HostileRouter(fleet, "decode") as router:
            good = worker_pb2.ReserveRequest(router_id="fuzz", leg=leg(f"t-{number}"), reason=1, map_now=True)
            granted = decode.Reserve(good, timeout=CALL_TIMEOUT_S)
            send_one(fleet, "DecodeWorker", "Reserve", merged(good, changed))
            for service, name, misuse in misuses:
                send_one(fleet, service, name, merged(of_ticket(name, granted), misuse))
            router.settle(f"t-{number}-last")

    attack()
    honest.check()


def of_ticket(name: str, granted: worker_pb2.ReserveResponse) -> Message:
    """What an honest peer could say of this ticket."""
    ticket_id, generation = granted.ticket.ticket_id, granted.ticket.generation
    match name:
        case "Push":
            extent = transfer_pb2.Extent(logical_block=granted.cached_blocks, offset=0, length=16)
            header = transfer_pb2.PushHeader(ticket_id=ticket_id, generation=generation, extents=[extent])
            return transfer_pb2.PushFrame(header=header, payload=bytes(16))
        case "Commit":
            return transfer_pb2.CommitRequest(
                ticket_id=ticket_id, generation=generation, num_ranks=1, num_computed_tokens=40, attempt=1
            )
        case "Fail":
            return transfer_pb2.FailRequest(ticket_id=ticket_id, generation=generation)
    kinds: dict[str, Any] = {
        "Map": transfer_pb2.MapRequest,
        "Abort": worker_pb2.AbortRequest,
        "Release": worker_pb2.ReleaseRequest,
    }
    message: Message = kinds[name](ticket_id=ticket_id)
    return message


def send_one(fleet: Fleet, service: str, name: str, message: Message) -> None:
    module = transfer_pb2 if service == "KvTransfer" else worker_pb2
    method = module.DESCRIPTOR.services_by_name[service].methods_by_name[name]
    send(fleet.channels["decode"], method, [message.SerializeToString()])
