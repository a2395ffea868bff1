"""Every kernel against its textbook twin."""

from __future__ import annotations

import pytest
import torch

from common.kernels import reference
from common.kernels.rms_norm import rms_norm
from common.kernels.rotary import apply_rotary
from common.kernels.silu_and_mul import silu_and_mul

NUM_TOKENS, NUM_HEADS, HEAD_DIM = 7, 5, 16
TOLERANCES = {torch.float32: 1e-6, torch.bfloat16: 2e-2}


@pytest.fixture(params=TOLERANCES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    value = request.param
    assert isinstance(value, torch.dtype)
    return value


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = TOLERANCES[actual.dtype]
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


def assert_differs(actual: torch.Tensor, expected: torch.Tensor) -> None:
    with pytest.raises(AssertionError):
        assert_close(actual, expected)


def rotation(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Angles, and cosine and signed sine as the kernel takes them."""
    angles = random(NUM_TOKENS, HEAD_DIM // 2, dtype=torch.float32, seed=2) * 3
    cos, sin = angles.cos(), angles.sin()
    return angles, torch.cat((cos, cos), -1)[:, None].to(dtype), torch.cat((-sin, sin), -1)[:, None].to(dtype)


def test_rms_norm(dtype: torch.dtype) -> None:
    hidden, weight = random(NUM_TOKENS, 48, dtype=dtype) * 3, random(48, dtype=dtype, seed=1)
    before = hidden.clone()
    expected = reference.rms_norm(hidden, weight, 1e-5)
    assert_close(rms_norm(hidden, weight, 1e-5), expected)
    assert torch.equal(hidden, before)
    assert_differs(rms_norm(hidden, weight, 1.0), expected)


def test_rms_norm_of_heads_with_a_weight_each(dtype: torch.dtype) -> None:
    hidden = random(NUM_TOKENS, NUM_HEADS, HEAD_DIM, dtype=dtype)
    weight = random(NUM_HEADS, HEAD_DIM, dtype=dtype, seed=1)
    assert_close(rms_norm(hidden, weight, 1e-6), reference.rms_norm(hidden, weight, 1e-6))


def test_apply_rotary(dtype: torch.dtype) -> None:
    heads = random(NUM_TOKENS, NUM_HEADS, HEAD_DIM, dtype=dtype)
    before = heads.clone()
    angles, cos, signed_sin = rotation(dtype)
    expected = reference.apply_rotary(heads, angles)
    assert_close(apply_rotary(heads, cos, signed_sin), expected)
    assert torch.equal(heads, before)
    assert_differs(apply_rotary(heads, cos, -signed_sin), expected)


def test_apply_rotary_to_a_view() -> None:
    heads = random(NUM_TOKENS, NUM_HEADS + 2, HEAD_DIM, dtype=torch.float32)[:, :NUM_HEADS]
    angles, cos, signed_sin = rotation(torch.float32)
    assert_close(apply_rotary(heads, cos, signed_sin), reference.apply_rotary(heads, angles))


def test_silu_and_mul(dtype: torch.dtype) -> None:
    gate_up = random(NUM_TOKENS, 2 * 40, dtype=dtype) * 4
    before = gate_up.clone()
    expected = reference.silu_and_mul(gate_up)
    assert_close(silu_and_mul(gate_up), expected)
    assert torch.equal(gate_up, before)
    assert_differs(silu_and_mul(gate_up.flip(-1)), expected)
