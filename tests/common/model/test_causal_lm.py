"""Every family against transformers, through a paged cache with shuffled blocks: logits, not just tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from common.attention.torch_attention import TorchAttention
from common.model.architecture import ArchitectureConfig
from common.model.causal_lm import CausalLM
from common.model.checkpoint import Checkpoint
from common.model.weights import load_weights
from tests.support.models import FAMILIES, SIZES, save_model
from tests.support.paged import PagedCache, PagedSequence, make_batch

TOLERANCE = 2e-5  # of logits whose spread is about 1
NUM_DECODE_STEPS = 6
PROMPT_LENS = (1, 9, 40, 75)


def load(folder: Path) -> CausalLM:
    architecture = ArchitectureConfig.load(folder)
    model = CausalLM(
        architecture,
        TorchAttention(),
        max_model_len=architecture.max_position_embeddings,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    load_weights(model, Checkpoint.open(folder))
    return model


def make_cache(model: CausalLM, block_size: int) -> PagedCache:
    architecture = model.architecture
    return PagedCache(
        num_blocks=64 * 16 // block_size,
        num_layers=architecture.num_layers,
        num_kv_heads=architecture.num_kv_heads,
        block_size=block_size,
        head_dim=architecture.head_dim,
    )


def make_sequences() -> list[PagedSequence]:
    generator = torch.Generator().manual_seed(17)
    lengths = [length + NUM_DECODE_STEPS for length in PROMPT_LENS]
    return [
        PagedSequence(torch.randint(3, SIZES["vocab_size"], (length,), generator=generator).tolist())
        for length in lengths
    ]


@torch.inference_mode()
def compute(model: CausalLM, cache: PagedCache, scheduled: list[tuple[PagedSequence, int]]) -> list[torch.Tensor]:
    """Logits of the scheduled rows, by sequence."""
    batch = make_batch(cache, scheduled)
    logits = model.logits(model(batch, cache)[batch.logits_indices])
    return list(logits.split([count for _, count in scheduled]))


def compute_all(model: CausalLM, cache: PagedCache, chunk: int) -> list[torch.Tensor]:
    """Prefill in chunks beside one another, then decode; shorter prompts decode while longer ones still prefill."""
    sequences = make_sequences()
    rows: list[list[torch.Tensor]] = [[] for _ in sequences]
    while any(sequence.num_computed < len(sequence.token_ids) for sequence in sequences):
        scheduled, owners = [], []
        for index, (sequence, prompt_len) in enumerate(zip(sequences, PROMPT_LENS, strict=True)):
            left = len(sequence.token_ids) - sequence.num_computed
            count = min(chunk, max(1, prompt_len - sequence.num_computed), left)
            if count:
                scheduled.append((sequence, count))
                owners.append(index)
        for owner, logits in zip(owners, compute(model, cache, scheduled), strict=True):
            rows[owner].append(logits)
    return [torch.cat(chunks) for chunks in rows]


@torch.inference_mode()
def expected_logits(reference: PreTrainedModel) -> list[torch.Tensor]:
    return [reference(torch.tensor([sequence.token_ids])).logits[0] for sequence in make_sequences()]


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_transformers(tmp_path: Path, family: str) -> None:
    expected = expected_logits(save_model(tmp_path, family))
    model = load(tmp_path)
    assert min(logits.std() for logits in expected) > 0.5
    for block_size, chunk in ((16, 1000), (8, 13), (16, 32)):
        actual = compute_all(model, make_cache(model, block_size), chunk)
        for ours, theirs in zip(actual, expected, strict=True):
            torch.testing.assert_close(ours, theirs, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("family", ["llama", "mistral_window"])
def test_a_corrupted_block_changes_the_logits(tmp_path: Path, family: str) -> None:
    (expected,) = expected_logits(save_model(tmp_path, family))[-1:]
    model = load(tmp_path)
    cache, sequence = make_cache(model, 16), make_sequences()[-1]
    prompt_len = PROMPT_LENS[-1]
    compute(model, cache, [(sequence, prompt_len)])
    cache.slabs[sequence.block_ids[-2], 1] += 0.5
    (logits,) = compute(model, cache, [(sequence, 1)])
    assert (logits[0] - expected[prompt_len]).abs().max() > 1000 * TOLERANCE


def test_bfloat16_is_close_to_float32(tmp_path: Path) -> None:
    save_model(tmp_path, "llama")
    model = load(tmp_path)
    narrow = load(tmp_path).to(torch.bfloat16)
    sequence, count = make_sequences()[-1], PROMPT_LENS[-1]
    (wide_logits,) = compute(model, make_cache(model, 16), [(sequence, count)])
    cache = make_cache(model, 16)
    cache.slabs = cache.slabs.bfloat16()
    (logits,) = compute(narrow, cache, [(make_sequences()[-1], count)])
    assert logits.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(logits, wide_logits).min() > 0.99
