"""The receiving process: a decode worker's service over a pool, without engine, and a plain socket beside it.

Speaks JSON lines: a request on stdin, an answer on stdout.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.transfer.pools import SPEC, make_pool
from common.config import TransferConfig
from common.heap import freeze_loaded
from common.kv.block_map import GroupMap
from common.kv.ticket import Drop, Ticket, TicketAction, TicketOffer, TransferReason
from common.kv.ticket_table import TicketTable
from common.net.server import GrpcServer
from common.request import RequestId
from common.transport.endpoints import make_sink
from common.transport.offer import rank_endpoint
from common.transport.push_target import encode_maps
from common.transport.ticket_sink import TicketSink
from common.transport.transfer_counters import TransferCounters
from common.worker.malloc import keep_large_buffers
from common.worker.pool_blocks import PoolBlocks
from protos import transfer_pb2

SOCKET_BUFFER_BYTES = 2**20


class DiscardingBlocks(PoolBlocks):
    """Drops what it is given: how fast bytes arrive when nobody puts them anywhere."""

    def write_block(self, group_id: int, block_id: int, offset: int, data: memoryview) -> None:
        pass


class Sink:
    """One way to receive: settings of the transfer, and whether what arrives is kept."""

    def __init__(self, num_blocks: int, blocks: PoolBlocks, config: TransferConfig) -> None:
        self._config = config
        self._num_blocks = num_blocks
        self._server = GrpcServer(bulk=True)
        self._sink = TicketSink(TicketTable(spec=SPEC, lease_s=60.0), self._carry_out)
        receiver = make_sink(config, self._sink, self._map, blocks, TransferCounters(), SPEC)
        self._server.server.add_generic_rpc_handlers((receiver.handler(),))
        self._address = f"127.0.0.1:{self._server.bind('127.0.0.1', 0)}"
        self.drops: list[str] = []

    async def start(self) -> None:
        await self._server.start([])

    async def stop(self) -> None:
        await self._server.stop(0)

    def target(self) -> transfer_pb2.PushTarget:
        """A mapped ticket for the whole pool, in an order of its own: neighbours there are none here."""
        table, now = self._sink.table, self._sink.now()
        ticket = table.offer(
            TicketOffer(
                request_id=RequestId("benchmark"),
                attempt=1,
                choice_indices=(0,),
                source_worker_id=None,
                reason=TransferReason.HANDOVER,
            ),
            now,
        )
        stride = next(step for step in (7, 11, 13) if self._num_blocks % step)
        block_ids = tuple(index * stride % self._num_blocks for index in range(self._num_blocks))
        maps = (GroupMap(group_id=0, block_ids=block_ids, present=(False,) * self._num_blocks),)
        num_tokens = self._num_blocks * SPEC.block_size
        table.credit(ticket.ticket_id, reservation_id="room", credit_tokens=1, num_tokens=num_tokens, now=now)
        generation = table.map(ticket.ticket_id, maps, now)
        return transfer_pb2.PushTarget(
            ticket=transfer_pb2.Ticket(ticket_id=ticket.ticket_id, generation=generation),
            sink_ranks=[rank_endpoint(self._address, self._config)],
            map=encode_maps(maps),
        )

    async def _map(self, ticket_id: str) -> Ticket:
        return self._sink.table.get(ticket_id)

    def _carry_out(self, action: TicketAction) -> None:
        if isinstance(action, Drop):
            self.drops.append(action.ticket_id)


def serve_socket(listener: socket.socket) -> None:
    """Receives (8 bytes: how many follow) and answers one byte when all are here."""
    buffer = bytearray(SOCKET_BUFFER_BYTES)
    while True:
        connection, _ = listener.accept()
        with connection:
            num_left = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "little")
            while num_left and (num_read := connection.recv_into(buffer)):
                num_left -= num_read
            connection.sendall(b"\1")


def usage() -> dict[str, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    status = Path("/proc/self/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return {
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_bytes": int(fields["VmHWM"].split()[0]) * 1024,
        "resident_bytes": int(fields["VmRSS"].split()[0]) * 1024,
    }


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


async def main(num_blocks: int, configs: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    keep_large_buffers()
    freeze_loaded()  # as workers do
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve_socket, args=(listener,), daemon=True).start()
    pool = make_pool(num_blocks, seed=None)
    sinks = {}
    for name, settings in configs.items():
        discard = settings.pop("discard", False)
        config = TransferConfig(**{**settings, "kv_transports": tuple(settings["kv_transports"])})
        sinks[name] = Sink(num_blocks, DiscardingBlocks(pool) if discard else PoolBlocks(pool), config)
        await sinks[name].start()
    say({"port": listener.getsockname()[1]})
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        match request["ask"]:
            case "target":
                say({"target": sinks[request["sink"]].target().SerializeToString().hex()})
            case "usage":
                say(usage())
            case "reset_peak":
                reset_peak()
                say({})
    for sink in sinks.values():
        await sink.stop()


def own_stdout() -> Callable[[dict[str, Any]], None]:
    """What says an answer. What libraries print (NIXL does) goes to stderr from now on."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    return say


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), json.loads(sys.argv[2]), own_stdout()))
