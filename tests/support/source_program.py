"""`python -m tests.support.source_program CONFIG TARGET`: a source that pushes the first of its blocks and waits.

CONFIG is a TransferConfig's fields in JSON, TARGET a PushTarget in hex. Says `PUSHED` when the sink has them.
"""

from __future__ import annotations

import asyncio
import json
import sys

from common.config import TransferConfig
from common.kv.ticket import BlockRef
from common.transport.channels import PeerChannels
from common.transport.endpoints import make_source
from common.transport.push_target import PushTarget
from common.transport.transfer_counters import TransferCounters
from protos import transfer_pb2
from tests.support.transfer import MemoryBlocks, small_spec


async def main(config: TransferConfig, target: PushTarget) -> None:
    senders = make_source(config, MemoryBlocks(small_spec(), seed=1), PeerChannels(), TransferCounters())
    sender = senders.open(target)
    await sender.push([(BlockRef(0, 0), 20)])
    sys.stdout.write(f"PUSHED {sender.transport}\n")
    sys.stdout.flush()
    await asyncio.sleep(60)


if __name__ == "__main__":
    fields = json.loads(sys.argv[1])
    config = TransferConfig(**{**fields, "kv_transports": tuple(fields["kv_transports"])})
    asyncio.run(main(config, PushTarget.from_wire(transfer_pb2.PushTarget.FromString(bytes.fromhex(sys.argv[2])))))
