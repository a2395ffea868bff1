"""Which layout a worker gets, and what the weights take in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from common.attention.native_attention import NativeAttention
from common.attention.torch_attention import TorchAttention
from common.config import EngineConfig
from common.kernels.cpu.huge_pages import HugeArena, huge_buffer
from common.model.loader import describe_model, load_model
from common.model.native_decoder import decoder_bytes
from common.model.weight_layout import WeightLayout, best_layout
from tests.support.models import save_model
from tests.support.native import native_library


@pytest.mark.parametrize("wanted", WeightLayout)
def test_without_native_kernels_everything_is_rows(wanted: WeightLayout) -> None:
    assert best_layout(wanted, TorchAttention(), torch.bfloat16) is WeightLayout.ROWS


@pytest.mark.parametrize("wanted", WeightLayout)
@pytest.mark.parametrize(
    ("isa_name", "dtype"),
    [("avx512_bf16", torch.bfloat16), ("avx512_bf16", torch.float32), ("avx2", torch.float32)],
    ids=str,
)
def test_at_the_full_rate_panels_serve_every_role(isa_name: str, dtype: torch.dtype, wanted: WeightLayout) -> None:
    assert best_layout(wanted, NativeAttention(native_library(isa_name)), dtype) is WeightLayout.PANELS


@pytest.mark.parametrize("wanted", WeightLayout)
def test_where_bfloat16_must_be_widened_the_role_decides(wanted: WeightLayout) -> None:
    assert best_layout(wanted, NativeAttention(native_library("avx2")), torch.bfloat16) is wanted


@pytest.mark.parametrize("family", ["llama", "llama_tied"])
def test_the_memory_of_panels_is_reckoned(tmp_path: Path, family: str) -> None:
    """Up to what padding to whole panels adds, which is much in so small a model."""
    library = native_library("avx2")
    save_model(tmp_path, family)
    model = describe_model(EngineConfig(model=str(tmp_path), device="cpu", attention_backend="native"))
    assert model.layout is WeightLayout.PANELS
    kept = sum(parameter.nbytes for parameter in load_model(model).parameters())
    packed = decoder_bytes(model.architecture, library.panel_columns, 4)
    assert 0.7 * (kept + packed) < model.weight_bytes <= kept + packed


def test_an_arena_hands_out_aligned_copies() -> None:
    arena = HugeArena(1000)
    tensors = [torch.randn(3, 5), torch.randn(7).bfloat16()]
    for tensor in tensors:
        copy = arena.place(tensor)
        assert torch.equal(copy, tensor) and copy.data_ptr() % 64 == 0


def test_a_huge_buffer_starts_at_a_huge_page_and_is_zero() -> None:
    buffer = huge_buffer(3_000_001)
    assert buffer.shape == (3_000_001,) and buffer.data_ptr() % (2 * 2**20) == 0 and not buffer.any()
