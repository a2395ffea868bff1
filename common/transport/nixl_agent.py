"""This process's NIXL agent, with its pool registered: RDMA where there is any, else UCX's TCP or shared memory.

`nixl` is an extra: this module alone imports it, and only where it is configured.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import OrderedDict
from typing import Any

import torch

from common.errors import ConfigError, UnavailableError
from common.transport.tensor_blocks import TensorBlocks

logger = logging.getLogger(__name__)

READ_TIMEOUT_S = 4.0
POLL_S = 50e-6
MAX_REMOTE_AGENTS = 64


class NixlAgent:
    """Any thread: NIXL is told to lock."""

    def __init__(self, blocks: TensorBlocks) -> None:
        """Raises ConfigError when NIXL can't be used here."""
        try:
            from nixl._api import nixl_agent, nixl_agent_config, nixl_thread_sync_t

            self.name = f"slipstream-{secrets.token_hex(8)}"
            config = nixl_agent_config(backends=["UCX"], sync_mode=nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT)
            self._agent: Any = nixl_agent(self.name, config)
            for tensor in blocks.pool_tensors():
                self._agent.register_memory(tensor)
            self.metadata: bytes = self._agent.get_agent_metadata()
        except Exception as error:
            raise ConfigError("kv_transports", f"nixl can't be used here: {error}") from error
        self._remotes: OrderedDict[str, str] = OrderedDict()  # by the name told: the name that NIXL says

    def register(self, tensor: torch.Tensor) -> None:
        self._agent.register_memory(tensor)

    def know(self, name: str, metadata: bytes) -> str:
        """Another process's agent. Raises UnavailableError when its description is none."""
        known = self._remotes.get(name)
        if known is None:
            try:
                known = self._agent.add_remote_agent(metadata)
            except Exception as error:
                raise UnavailableError(f"nixl: the source's agent can't be reached: {error}") from error
            self._remotes[name] = known = known.decode() if isinstance(known, bytes) else known
        self._remotes.move_to_end(name)
        while len(self._remotes) > MAX_REMOTE_AGENTS:
            _, oldest = self._remotes.popitem(last=False)
            self._forget(oldest)
        return known

    def read(
        self, remote: str, addresses: list[tuple[int, int, int]], remote_type: str, destination: torch.Tensor
    ) -> None:
        """Fills a [n] uint8 tensor from (address, bytes, device) at a remote agent.

        Raises UnavailableError when it fails, or has not ended in time: then NIXL may write to the tensor still.
        """
        try:
            local = self._local_descriptors(destination, [length for _, length, _ in addresses])
            there = self._agent.get_xfer_descs(addresses, remote_type)
            handle = self._agent.initialize_xfer("READ", local, there, remote)
            state = self._agent.transfer(handle)
            deadline_s = time.monotonic() + READ_TIMEOUT_S
            while state == "PROC" and time.monotonic() < deadline_s:
                time.sleep(POLL_S)
                state = self._agent.check_xfer_state(handle)
            self._agent.release_xfer_handle(handle)
        except Exception as error:
            raise UnavailableError(f"nixl: {error}") from error
        if state != "DONE":
            raise UnavailableError("nixl: a read did not end in time" if state == "PROC" else "nixl: a read failed")

    def _local_descriptors(self, destination: torch.Tensor, lengths: list[int]) -> Any:
        start, rows = destination.data_ptr(), []
        for length in lengths:
            rows.append((start, length, device_id(destination)))
            start += length
        return self._agent.get_xfer_descs(rows, memory_type(destination))

    def _forget(self, remote: str) -> None:
        try:
            self._agent.remove_remote_agent(remote)
        except Exception as error:
            logger.debug("nixl: %s was not forgotten: %s", remote, error)


def memory_type(tensor: torch.Tensor) -> str:
    return "DRAM" if tensor.device.type == "cpu" else "VRAM"


def device_id(tensor: torch.Tensor) -> int:
    return tensor.device.index or 0
