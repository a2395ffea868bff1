"""Whole steps in one call against the model layer by layer in torch, for every family."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from common.attention.native_attention import NativeAttention
from common.attention.torch_attention import TorchAttention
from common.kernels.cpu.abi import ISA_NAMES
from common.kernels.cpu.library import CpuLibrary
from common.model.architecture import ArchitectureConfig
from common.model.causal_lm import CausalLM
from common.model.checkpoint import Checkpoint
from common.model.native_decoder import MAX_ROWS, NativeDecoder
from common.model.weight_layout import WeightLayout
from common.model.weights import load_weights
from tests.support.models import FAMILIES, SIZES, save_model
from tests.support.native import native_library
from tests.support.paged import PagedCache, PagedSequence, make_batch

TOLERANCE = 2e-5  # of logits whose spread is about 1
BFLOAT16_TOLERANCE = 0.2
PROMPT_LENS = (1, 9, 40, 75)
NUM_GREEDY_STEPS = 20


@pytest.fixture(params=ISA_NAMES.values())
def library(request: pytest.FixtureRequest) -> CpuLibrary:
    return native_library(request.param)


def load(
    folder: Path,
    library: CpuLibrary | None,
    dtype: torch.dtype = torch.float32,
    layout: WeightLayout = WeightLayout.BOTH,
) -> CausalLM:
    """With the native kernels, or without."""
    architecture = ArchitectureConfig.load(folder)
    model = CausalLM(
        architecture,
        TorchAttention() if library is None else NativeAttention(library),
        max_model_len=architecture.max_position_embeddings,
        dtype=dtype,
        device=torch.device("cpu"),
    )
    load_weights(model, Checkpoint.open(folder))
    if library is not None:
        model.decoder = NativeDecoder(model, library, layout)
    return model


def make_cache(model: CausalLM, block_size: int = 16) -> PagedCache:
    architecture = model.architecture
    return PagedCache(
        num_blocks=64 * 16 // block_size,
        num_layers=architecture.num_layers,
        num_kv_heads=architecture.num_kv_heads,
        block_size=block_size,
        head_dim=architecture.head_dim,
        dtype=model.embedding.dtype,
    )


def make_sequences() -> list[PagedSequence]:
    generator = torch.Generator().manual_seed(17)
    return [
        PagedSequence(torch.randint(3, SIZES["vocab_size"], (length,), generator=generator).tolist())
        for length in PROMPT_LENS
    ]


@torch.inference_mode()
def greedy(model: CausalLM, block_size: int = 16) -> tuple[list[list[int]], torch.Tensor]:
    """Tokens of each prompt, and the logits of every step, [num_steps, num_requests, vocab_size]."""
    cache, sequences = make_cache(model, block_size), make_sequences()
    counts = [len(sequence.token_ids) for sequence in sequences]
    steps = []
    for _ in range(NUM_GREEDY_STEPS):
        batch = make_batch(cache, list(zip(sequences, counts, strict=True)))
        last_rows = torch.tensor(batch.query_start_loc_cpu[1:]) - 1
        steps.append(model.logits(model(batch, cache)[last_rows]))
        for sequence, token in zip(sequences, steps[-1].argmax(dim=-1).tolist(), strict=True):
            sequence.token_ids.append(token)
        counts = [1] * len(sequences)
    return [sequence.token_ids for sequence in sequences], torch.stack(steps)


@pytest.mark.parametrize("layout", [WeightLayout.PANELS, WeightLayout.BOTH])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_greedy_tokens_as_torch(
    tmp_path: Path, library: CpuLibrary, family: str, layout: WeightLayout
) -> None:
    """With both layouts, prompts of 125 tokens together go layer by layer, the steps that follow in one call."""
    save_model(tmp_path, family)
    tokens, logits = greedy(load(tmp_path, library, layout=layout))
    expected_tokens, expected_logits = greedy(load(tmp_path, None))
    assert tokens == expected_tokens
    torch.testing.assert_close(logits, expected_logits, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("family", ["llama", "mistral_window", "qwen2", "qwen3"])
def test_bfloat16_is_near_float32(tmp_path: Path, library: CpuLibrary, family: str) -> None:
    save_model(tmp_path, family)
    model = load(tmp_path, library, torch.bfloat16)
    exact = load(tmp_path, None)
    sequences = make_sequences()
    rows = []
    for one in (model, exact):
        cache = make_cache(one)
        copies = [PagedSequence(sequence.token_ids[:9]) for sequence in sequences if len(sequence.token_ids) >= 9]
        batch = make_batch(cache, [(sequence, 9) for sequence in copies])
        rows.append(one.logits(one(batch, cache)).softmax(-1))
    assert (rows[0] - rows[1]).abs().max() < BFLOAT16_TOLERANCE


def test_short_chunks_beside_decoding_requests(tmp_path: Path, library: CpuLibrary) -> None:
    save_model(tmp_path, "qwen3")
    hidden = []
    for model in (load(tmp_path, library), load(tmp_path, None)):
        cache, sequences = make_cache(model), make_sequences()
        with torch.inference_mode():
            model(make_batch(cache, list(zip(sequences, (0, 5, 40, 60), strict=True))[1:]), cache)
            batch = make_batch(cache, [(sequences[0], 1), (sequences[1], 4), (sequences[3], 15)])
            assert batch.num_tokens <= MAX_ROWS
            hidden.append(model(batch, cache))
    torch.testing.assert_close(hidden[0], hidden[1], atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("block_size", [8, 64])
def test_any_block_size(tmp_path: Path, library: CpuLibrary, block_size: int) -> None:
    save_model(tmp_path, "llama")
    assert greedy(load(tmp_path, library), block_size)[0] == greedy(load(tmp_path, None))[0]


def test_the_number_of_threads_changes_no_bit(tmp_path: Path, library: CpuLibrary) -> None:
    save_model(tmp_path, "llama_wide_heads")
    logits = []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        model = load(tmp_path, library)
        cache, sequences = make_cache(model), make_sequences()[1:2]
        with torch.inference_mode():
            logits.append(model.logits(model(make_batch(cache, [(sequences[0], 9)]), cache)))
    assert torch.equal(logits[0], logits[1]) and torch.equal(logits[0], logits[2])


def test_panels_alone_hold_each_weight_once(tmp_path: Path, library: CpuLibrary) -> None:
    save_model(tmp_path, "llama")
    both, panels = (load(tmp_path, library, layout=layout) for layout in (WeightLayout.BOTH, WeightLayout.PANELS))
    kept = sum(parameter.numel() for parameter in panels.parameters())
    vectors = sum(parameter.numel() for parameter in both.parameters() if parameter.ndim == 1)
    assert kept == both.embedding.numel() + vectors
