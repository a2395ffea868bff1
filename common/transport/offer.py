"""What a worker offers to those who send it blocks."""

from __future__ import annotations

import socket
from pathlib import Path

from common.config import TransferConfig
from common.transport.checksum import Checksum
from protos import layout_pb2

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def host_id() -> str:
    """Equal on processes under one running kernel: containers on a host have names of their own, and may lie."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return socket.gethostname()


def offered_transports(config: TransferConfig) -> tuple[str, ...]:
    """Of those that are configured, those that there is something for: best first."""
    there = {
        "shm": Path(config.shm_directory).is_dir(),
        "island": config.island is not None,
        "nixl": True,  # who asks for it must have it: the agent says so
        "grpc": True,
    }
    return tuple(name for name in config.kv_transports if there[name])


def accepted_checksums(config: TransferConfig) -> tuple[str, ...]:
    verified = tuple(checksum.value for checksum in Checksum if checksum is not Checksum.NONE)
    return (*verified, Checksum.NONE.value) if config.kv_checksum == Checksum.NONE.value else verified


def rank_endpoint(address: str, config: TransferConfig) -> layout_pb2.RankEndpoint:
    """The one rank of a worker that listens on `address`, host:port."""
    return layout_pb2.RankEndpoint(
        rank=0,
        address=address,
        transports=offered_transports(config),
        host_id=host_id(),
        island=config.island or "",
        checksums=accepted_checksums(config),
    )
