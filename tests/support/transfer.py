"""Two ends of a gRPC transfer in one process: pools of plain memory, a real server between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from common.config import TransferConfig
from common.kv.block_map import GroupMap
from common.kv.spec import KVCacheGroup, KVCacheSpec
from common.kv.ticket import Ticket, TicketAction, TicketOffer, TransferReason
from common.kv.ticket_table import TicketTable
from common.net.server import GrpcServer
from common.request import RequestId
from common.transport.channels import PeerChannels
from common.transport.endpoints import make_sink, make_source
from common.transport.grpc_receiver import GrpcReceiver
from common.transport.offer import rank_endpoint
from common.transport.push_target import PushTarget, SinkEndpoint, encode_maps
from common.transport.sender_factory import SenderFactory
from common.transport.shared_memory import PREFIX
from common.transport.ticket_sender import TicketSender
from common.transport.ticket_sink import TicketSink
from common.transport.transfer_counters import TransferCounters
from protos import transfer_pb2

NUM_BLOCKS = 32
GRPC = TransferConfig(kv_transports=("grpc",))
ISLAND = TransferConfig(kv_transports=("island", "grpc"), island="test")
NIXL = TransferConfig(kv_transports=("nixl", "grpc"))
SHARED_MEMORY = TransferConfig(kv_transports=("shm", "grpc"))
ATTEMPT = 1


def small_spec(head_dim: int = 64) -> KVCacheSpec:
    group = KVCacheGroup(group_id=0, layers=(0, 1), num_kv_heads=2, head_dim=head_dim, block_size=16, dtype="float32")
    return KVCacheSpec(groups=(group,))


class MemoryBlocks:
    """A BlockReader and BlockWriter over an array. `flip` corrupts what is read from a block."""

    def __init__(self, spec: KVCacheSpec, seed: int | None) -> None:
        shape = (NUM_BLOCKS, spec.groups[0].bytes_per_block)
        self.array = np.zeros(shape, np.uint8)
        if seed is not None:
            self.array[:] = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def in_host_memory(self) -> bool:
        return True

    def pool_tensors(self) -> list[torch.Tensor]:
        return [torch.from_numpy(self.array)]

    def block_tensor(self, group_id: int, block_id: int) -> torch.Tensor:
        return torch.from_numpy(self.array[block_id])

    def block_size_bytes(self, group_id: int) -> int:
        return self.array.shape[1]

    def block_bytes(self, group_id: int, block_id: int) -> memoryview:
        return self.array[block_id].data

    def write_block(self, group_id: int, block_id: int, offset: int, data: memoryview) -> None:
        self.array[block_id, offset : offset + len(data)] = np.frombuffer(data, np.uint8)


def rings_in(directory: Path) -> list[Path]:
    """Rings in shared memory that have a name still."""
    return list(directory.glob(f"{PREFIX}*"))


@dataclass(slots=True)
class Transfer:
    """A sink that serves, and what it was told to do."""

    address: str
    sink: TicketSink
    blocks: MemoryBlocks
    source: MemoryBlocks
    channels: PeerChannels
    counters: TransferCounters
    receiver: GrpcReceiver
    config: TransferConfig
    senders: SenderFactory
    actions: list[TicketAction] = field(default_factory=list)

    def target(self, block_ids: tuple[int, ...], present: tuple[bool, ...]) -> PushTarget:
        """A mapped ticket for a sequence that ends with its last block."""
        table, now = self.sink.table, self.sink.now()
        ticket = table.offer(
            TicketOffer(
                request_id=RequestId("request"),
                attempt=ATTEMPT,
                choice_indices=(0,),
                source_worker_id=None,
                reason=TransferReason.HANDOVER,
            ),
            now,
        )
        maps = (GroupMap(group_id=0, block_ids=block_ids, present=present),)
        num_tokens = 16 * len(block_ids)
        table.credit(ticket.ticket_id, reservation_id="room", credit_tokens=1, num_tokens=num_tokens, now=now)
        generation = table.map(ticket.ticket_id, maps, now)
        endpoint = SinkEndpoint.from_wire(rank_endpoint(self.address, self.config))
        return PushTarget(ticket_id=ticket.ticket_id, generation=generation, sinks=(endpoint,), maps=maps)

    @property
    def num_pairs(self) -> int:
        return 0 if self.receiver.pairs is None else self.receiver.pairs.num_pairs

    def encode(self, target: PushTarget) -> transfer_pb2.PushTarget:
        """As another process gets it."""
        return transfer_pb2.PushTarget(
            ticket=transfer_pb2.Ticket(ticket_id=target.ticket_id, generation=target.generation),
            sink_ranks=[rank_endpoint(self.address, self.config)],
            map=encode_maps(target.maps),
        )

    def sender(self, target: PushTarget) -> TicketSender:
        return self.senders.open(target)


@asynccontextmanager
async def open_transfer(
    spec: KVCacheSpec, config: TransferConfig = GRPC, *, source_config: TransferConfig | None = None
) -> AsyncIterator[Transfer]:
    """`source_config`: where the source's settings are others than the sink's."""
    server = GrpcServer(bulk=True)
    port = server.bind("127.0.0.1", 0)
    actions: list[TicketAction] = []
    sink = TicketSink(TicketTable(spec=spec, lease_s=10.0), actions.append)
    blocks, counters = MemoryBlocks(spec, None), TransferCounters()

    async def map_ticket(ticket_id: str) -> Ticket:
        return sink.table.get(ticket_id)

    receiver = make_sink(config, sink, map_ticket, blocks, counters, spec)
    server.server.add_generic_rpc_handlers((receiver.handler(),))
    await server.start([])
    channels = PeerChannels()
    source = MemoryBlocks(spec, seed=1)
    senders = make_source(source_config or config, source, channels, counters)
    try:
        address = f"127.0.0.1:{port}"
        yield Transfer(address, sink, blocks, source, channels, counters, receiver, config, senders, actions)
    finally:
        await senders.close()
        await channels.close()
        await server.stop(0)
        await asyncio.sleep(0)
