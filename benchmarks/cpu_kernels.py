"""The native CPU kernels against what this machine can do, and whole decode steps against torch.

    python -m benchmarks.cpu_kernels [--threads 2] [--model demo]

Every figure is the median of many runs, and native and torch take turns, so that both see the same other load. Limits
are measured in the same run: a share is the part of the memory bandwidth or of the bfloat16 product rate that was had.
Prints a verdict last, and exits with 1 on a miss; its times are meant for two threads and the demo model.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # read when torch loads its OpenMP library

import torch

from benchmarks.speed.limits import measure_limits as measure_gemm
from benchmarks.speed.prompts import Prompts
from common.attention.backend import AttentionBackend
from common.attention.forward_batch import ForwardBatch
from common.attention.native_attention import NativeAttention
from common.attention.torch_attention import TorchAttention
from common.checkpoint import resolve_model
from common.config import DType, EngineConfig
from common.engine.kv_cache import KVCache
from common.engine.sampler import Sampler, SamplingRow
from common.kernels.cpu.huge_pages import HugeArena, huge_buffer
from common.kernels.cpu.library import CpuLibrary
from common.kernels.cpu.packed_linear import PackedLinear, pack_linear, packed_bytes
from common.model.causal_lm import CausalLM
from common.model.loader import describe_model, load_model
from common.model.native_decoder import decoder_bytes
from common.request import SamplingParams

BATCH_SIZES = (1, 8, 32)
CONTEXTS = (300, 2000)  # tokens
BLOCK_SIZE = 16
READ_BYTES = 256 * 2**20
TARGETS_MS = {1: 12.0, 8: 17.0, 32: 52.0}  # at 300 tokens, with two threads
LEAST_BANDWIDTH_SHARE = 0.75  # of a step of one request
LEAST_GEMM_SHARE = 0.85  # of the linears of a chunk
PREFILL_ROWS = (256, 512)
DRAWN_ROWS = 32
COPIES = 24  # of a measured weight, together larger than any cache


@dataclass(frozen=True, kw_only=True)
class Limits:
    bytes_per_s: float
    operations_per_s: float  # bfloat16, multiplications and additions


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--model", default="demo")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    library = CpuLibrary.load()
    limits = measure_limits(library, arguments.threads)
    print(
        f"{library.isa_name}, {arguments.threads} threads: reads {limits.bytes_per_s / 1e9:.1f} GB/s, multiplies "
        f"{limits.operations_per_s / 1e9:.0f} GFLOP/s in bfloat16"
    )
    with torch.inference_mode():
        compare_linears(library, limits)
        misses = compare_steps(arguments.model, library, limits)
        misses += compare_prefill_linears(arguments.model, library, arguments.threads)
    print("\nmissed: " + "; ".join(misses) if misses else "\nmet: every target")
    return 1 if misses else 0


def measure_limits(library: CpuLibrary, num_threads: int) -> Limits:
    buffer = huge_buffer(READ_BYTES).fill_(1)
    read_s = min(seconds(lambda: library.read_memory(buffer)) for _ in range(10))
    count = 1_000_000
    multiply_s = min(seconds(lambda: library.multiply_registers(torch.bfloat16, count)) for _ in range(5))
    operations = num_threads * library.multiply_registers(torch.bfloat16, count)
    return Limits(bytes_per_s=READ_BYTES / read_s, operations_per_s=operations / multiply_s)


def compare_linears(library: CpuLibrary, limits: Limits) -> None:
    """The gate of the demo model's feed-forward layer, many copies of it, so that none stays in a cache."""
    num_outputs, depth = 3072, 576
    weights = [torch.randn(num_outputs, depth).bfloat16() for _ in range(COPIES)]
    arena = HugeArena(COPIES * packed_bytes(num_outputs, depth, library.panel_columns, 2))
    packed = [pack_linear(weight, None, panel_columns=library.panel_columns, arena=arena) for weight in weights]
    print(f"\nlinear {num_outputs} x {depth}     native ms    torch ms   of bandwidth   of products")
    for num_rows in (1, 2, 4, 8, 16, 32, 64, 256):
        hidden = torch.randn(num_rows, depth).bfloat16()
        native_s, torch_s = take_turns(
            partial(apply_native, library, packed, hidden),
            partial(apply_torch, weights, hidden),
            num_rounds=10,
        )
        bytes_share = COPIES * num_outputs * depth * 2 / native_s / limits.bytes_per_s
        product_share = 2 * COPIES * num_outputs * depth * num_rows / native_s / limits.operations_per_s
        print(
            f"  {num_rows:4d} rows           {native_s * 1e3 / COPIES:9.3f}   {torch_s * 1e3 / COPIES:9.3f}"
            f"   {bytes_share:12.0%}   {product_share:11.0%}"
        )


def compare_prefill_linears(name: str, library: CpuLibrary, num_threads: int) -> list[str]:
    """All of a model's linears in turn, on a chunk of a prompt, against the best product of large matrices."""
    architecture = describe_model(EngineConfig(model=name, dtype=DType.BFLOAT16, device="cpu")).architecture
    hidden_size, attended_size = architecture.hidden_size, architecture.num_q_heads * architecture.head_dim
    num_heads = architecture.num_q_heads + 2 * architecture.num_kv_heads
    shapes = {  # outputs and depth
        "qkv": (num_heads * architecture.head_dim, hidden_size),
        "output": (hidden_size, attended_size),
        "gate and up": (2 * architecture.intermediate_size, hidden_size),
        "down": (hidden_size, architecture.intermediate_size),
    }
    layer_weights = [
        {label: torch.randn(shape).bfloat16() for label, shape in shapes.items()}
        for _ in range(architecture.num_layers)
    ]
    arena = HugeArena(decoder_bytes(architecture, library.panel_columns, 2))
    layers = [
        {
            label: pack_linear(
                weight, None, panel_columns=library.panel_columns, arena=arena, silu_gate=label == "gate and up"
            )
            for label, weight in layer.items()
        }
        for layer in layer_weights
    ]
    gemm_per_s = measure_gemm(num_threads).gemm_gf_per_s * 1e9
    print(f"\nlinears of a chunk        native GF/s  torch GF/s   of GEMM ({gemm_per_s / 1e9:.0f} GF/s)")
    misses = []
    for num_rows in PREFILL_ROWS:
        total_s = total_operations = 0.0
        for label, (num_outputs, depth) in shapes.items():
            hidden = torch.randn(num_rows, depth).bfloat16()
            native_s, torch_s = take_turns(
                partial(apply_native, library, [one[label] for one in layers], hidden),
                partial(apply_torch, [one[label] for one in layer_weights], hidden),
                num_rounds=6,
            )
            operations = 2.0 * num_rows * num_outputs * depth * len(layers)
            total_s, total_operations = total_s + native_s, total_operations + operations
            print(
                f"  {num_rows:4d} rows, {label:11s} {operations / native_s / 1e9:11.0f}"
                f" {operations / torch_s / 1e9:11.0f}   {operations / native_s / gemm_per_s:7.0%}"
            )
        share = total_operations / total_s / gemm_per_s
        print(f"  {num_rows:4d} rows, all         {total_operations / total_s / 1e9:11.0f}{share:22.0%}")
        if share < LEAST_GEMM_SHARE:
            misses.append(f"linears of {num_rows} rows have {share:.0%} of the GEMM rate, not {LEAST_GEMM_SHARE:.0%}")
    return misses


def apply_native(library: CpuLibrary, packed: list[PackedLinear], hidden: torch.Tensor) -> None:
    for one in packed:
        one(library, hidden)


def apply_torch(weights: list[torch.Tensor], hidden: torch.Tensor) -> None:
    for weight in weights:
        torch.nn.functional.linear(hidden, weight)


def compare_steps(name: str, library: CpuLibrary, limits: Limits) -> list[str]:
    """The targets that were missed."""
    misses = []
    native, plain = (
        load_model(
            describe_model(EngineConfig(model=name, dtype=DType.BFLOAT16, device="cpu", attention_backend=backend))
        )
        for backend in ("native", "torch")
    )
    description = describe_model(EngineConfig(model=name, dtype=DType.BFLOAT16, device="cpu"))
    num_blocks = max(BATCH_SIZES) * -(-max(CONTEXTS) // BLOCK_SIZE)
    cache = KVCache(spec=description.spec, num_blocks=num_blocks, device=torch.device("cpu"))
    for tensor in cache.tensors:  # every page, else all would be one page of zeros
        tensor.view(torch.bfloat16).normal_()
    architecture = description.architecture
    weight_bytes = decoder_bytes(architecture, library.panel_columns, 2)
    print("\ndecode step           native ms    torch ms     times   of bandwidth   target ms")
    for context in CONTEXTS:
        for batch_size in BATCH_SIZES:
            batch = decode_batch(batch_size, context, num_blocks)
            native_s, torch_s = take_turns(partial(step, native, batch, cache), partial(step, plain, batch, cache))
            read_bytes = weight_bytes + batch_size * context * description.spec.bytes_per_block // BLOCK_SIZE
            share = read_bytes / native_s / limits.bytes_per_s
            target = f"{TARGETS_MS[batch_size]:.0f}" if context == CONTEXTS[0] else ""
            if target and native_s * 1e3 > TARGETS_MS[batch_size]:
                misses.append(f"a step of {batch_size} takes {native_s * 1e3:.1f} ms, not {target}")
            if target and batch_size == 1 and share < LEAST_BANDWIDTH_SHARE:
                misses.append(f"a step of 1 has {share:.0%} of the bandwidth, not {LEAST_BANDWIDTH_SHARE:.0%}")
            print(
                f"  {context:4d} tokens x {batch_size:2d}   {native_s * 1e3:11.1f} {torch_s * 1e3:11.1f}"
                f"   {torch_s / native_s:7.1f}   {share:12.0%}   {target:>9}"
            )
    compare_attention(native, cache, limits, num_blocks)
    compare_prompts(native, plain, cache, num_blocks)
    compare_draws(name, native, cache, num_blocks)
    return misses


def compare_prompts(native: CausalLM, plain: CausalLM, cache: KVCache, num_blocks: int) -> None:
    print("\nprompt               native tok/s   torch tok/s   times")
    for context, num_queries in ((0, 256), (0, 1024), (1024, 1024)):
        batch = chunk_batch(context, num_queries, num_blocks)
        native_s, torch_s = take_turns(
            partial(step, native, batch, cache), partial(step, plain, batch, cache), num_rounds=4
        )
        print(
            f"  {num_queries:4d} after {context:4d}   {num_queries / native_s:13.0f}"
            f" {num_queries / torch_s:13.0f} {torch_s / native_s:7.1f}"
        )


def compare_draws(name: str, model: CausalLM, cache: KVCache, num_blocks: int) -> None:
    """Tokens drawn from the distributions behind a text's tokens."""
    assert isinstance(model.attention, NativeAttention)
    (request,) = Prompts(resolve_model(name)).requests(1, DRAWN_ROWS, 1, seed=1)
    batch = chunk_batch(0, DRAWN_ROWS, num_blocks)
    batch = replace(batch, token_ids=torch.tensor(request.token_ids), logits_indices=torch.arange(DRAWN_ROWS))
    logits = step(model, batch, cache)
    print("\ndraw                 native ms    torch ms   times")
    for label, sampling in (
        ("temperature 1", SamplingParams(temperature=1.0, seed=1)),
        ("0.7, top_p 0.9", SamplingParams(temperature=0.7, top_p=0.9, seed=1)),
        ("1, top_k 50", SamplingParams(temperature=1.0, top_k=50, seed=1)),
    ):
        for num_rows in (1, DRAWN_ROWS):
            rows = [SamplingRow(row, sampling, 0, row, row) for row in range(num_rows)]
            native_s, torch_s = take_turns(
                partial(draw, model.attention.library, logits, rows), partial(draw, None, logits, rows)
            )
            times = f"{native_s * 1e3:11.2f} {torch_s * 1e3:11.2f}   {torch_s / native_s:5.1f}"
            print(f"  {label:14s} x {num_rows:2d} {times}")


def draw(library: CpuLibrary | None, logits: torch.Tensor, rows: Sequence[SamplingRow]) -> object:
    return Sampler(frozenset(), library).sample(logits[: len(rows)], rows)


def step(model: CausalLM, batch: ForwardBatch, cache: KVCache) -> torch.Tensor:
    return model.logits(model(batch, cache)[batch.logits_indices])


def compare_attention(model: CausalLM, cache: KVCache, limits: Limits, num_blocks: int) -> None:
    """One layer's attention: of many rows against the bandwidth, of a chunk after a prefix against the products."""
    architecture = model.architecture
    num_q_heads, num_kv_heads, head_dim = architecture.num_q_heads, architecture.num_kv_heads, architecture.head_dim
    assert isinstance(model.attention, NativeAttention)
    print("\nattention              native ms    torch ms   share of limit")
    for label, batch in (
        ("2,000 keys x 32 rows", decode_batch(32, 2000, num_blocks)),
        ("1,024 after 1,024", chunk_batch(1024, 1024, num_blocks)),
        ("512 after 7,168", chunk_batch(7168, 512, num_blocks)),
    ):
        query, key, value = (
            torch.randn(batch.num_tokens, num_heads, head_dim).bfloat16()
            for num_heads in (num_q_heads, num_kv_heads, num_kv_heads)
        )
        step_of = partial(attend, batch=batch, query=query, key=key, value=value, cache=cache, model=model)
        native_s, torch_s = take_turns(
            partial(step_of, model.attention), partial(step_of, TorchAttention()), num_rounds=5
        )
        pairs = sum(
            (end - start) * seq_len - (end - start) * (end - start - 1) // 2
            for start, end, seq_len in zip(
                batch.query_start_loc_cpu, batch.query_start_loc_cpu[1:], batch.seq_lens_cpu, strict=False
            )
        )
        if batch.num_tokens == batch.num_requests:
            limit_s = pairs * num_kv_heads * head_dim * 2 * 2 / limits.bytes_per_s
        else:
            limit_s = pairs * num_q_heads * head_dim * 4 / limits.operations_per_s
        layers = architecture.num_layers
        print(
            f"  {label:20s} {native_s * 1e3 / layers:9.2f} {torch_s * 1e3 / layers:11.2f}"
            f"   {limit_s * layers / native_s:14.0%}"
        )


def attend(
    backend: AttentionBackend,
    *,
    model: CausalLM,
    batch: ForwardBatch,
    query: torch.Tensor,  # [num_tokens, num_q_heads, head_dim]
    key: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
    value: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
    cache: KVCache,
) -> None:
    """All layers of the model, each with these queries, keys and values."""
    architecture = model.architecture
    plan = backend.plan(batch, cache.layer(0), (None,))
    for layer in range(architecture.num_layers):
        backend.attend(plan, query, key, value, cache.layer(layer), scale=architecture.head_dim**-0.5, window=None)


def decode_batch(num_requests: int, context: int, num_blocks: int) -> ForwardBatch:
    """One token for each of the requests, whose blocks lie anywhere; with it they have `context` tokens."""
    blocks_each = -(-context // BLOCK_SIZE)
    tables = torch.randperm(num_blocks)[: num_requests * blocks_each].view(num_requests, blocks_each)
    return ForwardBatch(
        token_ids=torch.arange(100, 100 + num_requests),
        positions=torch.full((num_requests,), context - 1),
        slot_mapping=tables[:, -1] * BLOCK_SIZE + (context - 1) % BLOCK_SIZE,
        block_tables=tables.int(),
        query_start_loc=torch.arange(num_requests + 1, dtype=torch.int32),
        seq_lens=torch.full((num_requests,), context, dtype=torch.int32),
        logits_indices=torch.arange(num_requests),
        query_start_loc_cpu=tuple(range(num_requests + 1)),
        seq_lens_cpu=(context,) * num_requests,
    )


def chunk_batch(context: int, num_queries: int, num_blocks: int) -> ForwardBatch:
    """One request that has `context` tokens and computes `num_queries` more."""
    seq_len = context + num_queries
    table = torch.randperm(num_blocks)[: -(-seq_len // BLOCK_SIZE)]
    positions = torch.arange(context, seq_len)
    return ForwardBatch(
        token_ids=torch.arange(num_queries),
        positions=positions,
        slot_mapping=table[positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE,
        block_tables=table[None].int(),
        query_start_loc=torch.tensor([0, num_queries], dtype=torch.int32),
        seq_lens=torch.tensor([seq_len], dtype=torch.int32),
        logits_indices=torch.tensor([num_queries - 1]),
        query_start_loc_cpu=(0, num_queries),
        seq_lens_cpu=(seq_len,),
    )


def take_turns(native: Callable[[], object], plain: Callable[[], object], num_rounds: int = 15) -> tuple[float, float]:
    """Median seconds of each. torch has fewer turns where it is much slower, and the first of each is not counted."""
    native(), plain()
    natives, plains = [], []
    for turn in range(num_rounds):
        natives += [seconds(native) for _ in range(2)]
        if turn % 3 == 0:
            plains.append(seconds(plain))
    return statistics.median(natives), statistics.median(plains)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
