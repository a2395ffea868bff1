"""How much memory an engine will need, reckoned before anything is loaded, and how many KV blocks that leaves."""

from __future__ import annotations

from dataclasses import dataclass

from common.config import EngineConfig, parse_bytes
from common.errors import InsufficientMemoryError
from common.kv.spec import KVCacheSpec

# Of the KV cache: what a batch that outgrows it by a fifth needs. More is for operators to give.
DEFAULT_SWAP_SHARE = 0.25
MAX_DEFAULT_SWAP_BYTES = 4 * 2**30
# Tokens of a step below which prefill would crawl.
MIN_USEFUL_STEP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeeds:
    """What is known of a model before its weights are read. Bytes unless the name says otherwise."""

    weight_bytes: int
    activation_bytes: int  # of a step of max_num_batched_tokens
    free_bytes: int  # on the device, now
    host_free_bytes: int | None = None  # of the host, now; None: the device is the host
    spec: KVCacheSpec
    max_model_len: int  # tokens
    max_num_batched_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Where the memory goes. `kv_bytes` are those of `num_blocks` blocks, `swap_bytes` of `num_host_blocks`."""

    weight_bytes: int
    activation_bytes: int
    kv_bytes: int
    swap_bytes: int
    free_bytes: int
    num_blocks: int
    num_host_blocks: int
    block_size: int  # tokens

    def __str__(self) -> str:
        return (
            f"memory: weights {_size(self.weight_bytes)}, activations {_size(self.activation_bytes)}, "
            f"KV cache {_size(self.kv_bytes)} ({self.num_blocks} blocks of {self.block_size} tokens), "
            f"swap space {_size(self.swap_bytes)}; "
            f"{_size(self.free_bytes)} free"
        )


def plan_memory(config: EngineConfig, needs: MemoryNeeds) -> MemoryPlan:
    """Sizes the KV pool from --kv-memory, or from a share of what weights and activations leave free, and the host
    pool from --swap-space or after the KV pool.

    Raises InsufficientMemoryError that names the flags to change and values that would fit.
    """
    left_bytes = needs.free_bytes - needs.weight_bytes - needs.activation_bytes
    bytes_per_block, block_size = needs.spec.bytes_per_block, needs.spec.block_size
    if left_bytes < bytes_per_block:
        raise InsufficientMemoryError(_no_room(config, needs))
    # More than a full batch of full length can only serve as prefix cache; twice that is enough by default.
    useful_bytes = 2 * config.max_num_seqs * -(-needs.max_model_len // block_size) * bytes_per_block
    if config.kv_memory is not None:
        kv_bytes = parse_bytes("kv_memory", config.kv_memory)
    else:
        kv_bytes = min(int(left_bytes * config.kv_memory_share), useful_bytes)
    if kv_bytes > left_bytes:
        raise InsufficientMemoryError(
            f"--kv-memory {_size(kv_bytes)} is more than the {_size(left_bytes)} that weights and activations leave: "
            f"set --kv-memory to at most {_flag(left_bytes)}"
        )
    num_blocks = kv_bytes // bytes_per_block
    needed_blocks = -(-needs.max_model_len // block_size)
    if num_blocks < needed_blocks:
        raise InsufficientMemoryError(_too_few_blocks(config, needs, num_blocks, needed_blocks, left_bytes))
    num_host_blocks = _swap_bytes(config, needs, kv_bytes, left_bytes) // bytes_per_block
    return MemoryPlan(
        weight_bytes=needs.weight_bytes,
        activation_bytes=needs.activation_bytes,
        kv_bytes=num_blocks * bytes_per_block,
        swap_bytes=num_host_blocks * bytes_per_block,
        free_bytes=needs.free_bytes,
        num_blocks=num_blocks,
        num_host_blocks=num_host_blocks,
        block_size=block_size,
    )


def _swap_bytes(config: EngineConfig, needs: MemoryNeeds, kv_bytes: int, left_bytes: int) -> int:
    room_bytes = left_bytes - kv_bytes if needs.host_free_bytes is None else needs.host_free_bytes
    if config.swap_space is None:
        return min(int(kv_bytes * DEFAULT_SWAP_SHARE), MAX_DEFAULT_SWAP_BYTES, room_bytes)
    swap_bytes = parse_bytes("swap_space", config.swap_space, least=0)
    if swap_bytes > room_bytes:
        raise InsufficientMemoryError(
            f"--swap-space {_size(swap_bytes)} is more than the {_size(room_bytes)} that are left for it: set "
            f"--swap-space to at most {_flag(room_bytes)}"
        )
    return swap_bytes


def _no_room(config: EngineConfig, needs: MemoryNeeds) -> str:
    said = (
        f"weights ({_size(needs.weight_bytes)}) and activations ({_size(needs.activation_bytes)}) leave no room "
        f"for a KV cache in {_size(needs.free_bytes)} of free memory"
    )
    request_bytes = -(-needs.max_model_len // needs.spec.block_size) * needs.spec.bytes_per_block
    # Activations grow with the tokens of a step.
    left_bytes = needs.free_bytes - needs.weight_bytes - request_bytes
    num_tokens = needs.max_num_batched_tokens * left_bytes // max(1, needs.activation_bytes)
    if num_tokens >= MIN_USEFUL_STEP:
        return f"{said}: set --max-num-batched-tokens to at most {num_tokens} (is {needs.max_num_batched_tokens})"
    needed_bytes = needs.weight_bytes + needs.activation_bytes + request_bytes
    return f"{said}: free {_size(needed_bytes)}, or choose a smaller --model, --dtype or --max-model-len"


def _too_few_blocks(
    config: EngineConfig, needs: MemoryNeeds, num_blocks: int, needed_blocks: int, left_bytes: int
) -> str:
    needed_bytes = needed_blocks * needs.spec.bytes_per_block
    advice = []
    if needed_bytes <= left_bytes:
        advice.append(f"--kv-memory to at least {_flag(needed_bytes, up=True)}")
    if num_blocks >= 1:
        advice.append(f"--max-model-len to at most {num_blocks * needs.spec.block_size}")
    given = "--kv-memory" if config.kv_memory is not None else f"a --kv-memory-share of {config.kv_memory_share:g}"
    return (
        f"{given} gives a KV cache of {num_blocks * needs.spec.block_size} tokens, but one request may have "
        f"{needs.max_model_len}: set {' or '.join(advice)}"
    )


def _size(num_bytes: int) -> str:
    """For people: 1.5 GiB."""
    return f"{num_bytes / 2**30:.2f} GiB" if abs(num_bytes) >= 2**30 else f"{num_bytes / 2**20:.1f} MiB"


def _flag(num_bytes: int, *, up: bool = False) -> str:
    """As a flag takes it: whole KiB, rounded so that the value fits."""
    kibibytes = -(-num_bytes // 1024) if up else num_bytes // 1024
    return f"{kibibytes}KiB"
