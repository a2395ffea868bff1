"""The fleets that are broken: one of a small random model for the whole table, one of SmolLM2 for real weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.chaos.fleet import FleetSpec
from common.checkpoint import resolve_model
from common.config import DType, EngineConfig

KV_MEMORY = "24MiB"
# Places in a decode worker's batch: few, so that a queue is quickly made.
MAX_NUM_SEQS = 32
# Tokens of a chunk: few, so that a long prompt has dozens.
CHUNK_TOKENS = 32


def small_fleet(model: Path) -> FleetSpec:
    """Of the model of `small_model`. Decode workers compute a blocker's prompt in one step.

    With plain torch a chunk takes some milliseconds, as a stage must to be seen; natively it takes one.
    """
    decode = EngineConfig(
        model=str(model),
        served_model_name="small",
        dtype=DType.FLOAT32,
        kv_memory=KV_MEMORY,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=4096,
        num_threads=1,
        attention_backend="torch",
    )
    return FleetSpec(
        model=model, prefill_engine=replace(decode, max_num_batched_tokens=CHUNK_TOKENS), decode_engine=decode
    )


def demo_fleet() -> FleetSpec:
    """Of SmolLM2-135M-Instruct, in float32."""
    model = Path(resolve_model("demo"))
    decode = EngineConfig(
        model=str(model),
        served_model_name="demo",
        dtype=DType.FLOAT32,
        kv_memory="256MiB",
        max_model_len=512,
        max_num_seqs=MAX_NUM_SEQS,
        num_threads=1,
    )
    return FleetSpec(
        model=model,
        prefill_engine=replace(decode, max_num_batched_tokens=CHUNK_TOKENS),
        decode_engine=decode,
        lease_s=10.0,  # a step of four processes on two cores may take a good part of a second
    )
