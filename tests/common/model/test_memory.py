"""The estimate of a step's tensors against what the model really takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from common.attention.torch_attention import TorchAttention
from common.model import memory
from common.model.architecture import ArchitectureConfig
from common.model.causal_lm import CausalLM
from common.model.checkpoint import Checkpoint
from common.model.memory import activation_bytes
from common.model.weights import load_weights
from tests.support.models import save_model
from tests.support.paged import PagedCache, PagedSequence, make_batch


def estimate(architecture: ArchitectureConfig, **changes: int) -> int:
    fields = {"max_num_seqs": 4, "max_num_batched_tokens": 200, **changes}
    return activation_bytes(architecture, max_model_len=256, itemsize=4, **fields)


@pytest.mark.parametrize("context", [0, 50])
@pytest.mark.parametrize("family", ["llama", "qwen2_mixed_windows"])
def test_a_step_takes_no_more_than_the_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, context: int
) -> None:
    monkeypatch.setattr(memory, "MAX_GATHERED_KEYS", 256)  # else its share of so small a model would hide the rest
    save_model(tmp_path, family)
    architecture = ArchitectureConfig.load(tmp_path)
    model = CausalLM(architecture, TorchAttention(), max_model_len=256, dtype=torch.float32, device=torch.device("cpu"))
    load_weights(model, Checkpoint.open(tmp_path))
    cache = PagedCache(
        num_blocks=32,
        num_layers=architecture.num_layers,
        num_kv_heads=architecture.num_kv_heads,
        block_size=16,
        head_dim=architecture.head_dim,
    )
    sequence = PagedSequence([7] * 250)
    with torch.inference_mode():
        if context:
            model(make_batch(cache, [(sequence, context)]), cache)
        batch = make_batch(cache, [(sequence, 200)])
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
            model.logits(model(batch, cache)[-1:])
    live = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    assert 0.2 * estimate(architecture) < peak <= estimate(architecture)


def test_it_grows_with_what_it_depends_on(tmp_path: Path) -> None:
    save_model(tmp_path, "llama")
    architecture = ArchitectureConfig.load(tmp_path)
    assert estimate(architecture, max_num_batched_tokens=400) > estimate(architecture)
    assert estimate(architecture, max_num_seqs=8) > estimate(architecture)
