"""The native backend against attention by the textbook, in each instruction set and dtype."""

from __future__ import annotations

import pytest
import torch

from common.attention.layer_kv_cache import LayerKVCache
from common.attention.native_attention import NativeAttention
from common.kernels.cpu.abi import ISA_NAMES
from tests.support.attention_step import BATCHES, Heads, attend, make_step, relaid
from tests.support.native import native_library

TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
# beyond one split of a row, one tile of keys and one tile of queries
LONG = [(1100, 1), (600, 150), (513, 3), (0, 260), (511, 1), (512, 1)]


@pytest.fixture(params=ISA_NAMES.values())
def backend(request: pytest.FixtureRequest) -> NativeAttention:
    return NativeAttention(native_library(request.param))


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("window", [None, 1, 10, 40, 500])
@pytest.mark.parametrize("name", BATCHES)
def test_equals_the_textbook(backend: NativeAttention, name: str, window: int | None, dtype: torch.dtype) -> None:
    step = make_step(BATCHES[name], window=window, dtype=dtype)
    actual, tolerance = attend(backend, step, step.cache.layer(1), window), TOLERANCES[dtype]
    torch.testing.assert_close(actual, step.expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("block_size", [8, 16, 64])
@pytest.mark.parametrize(
    "heads",
    [
        Heads(num_q_heads=9, num_kv_heads=3, head_dim=64),
        Heads(num_q_heads=8, num_kv_heads=8, head_dim=80),
        Heads(num_q_heads=4, num_kv_heads=1, head_dim=128),
        Heads(num_q_heads=14, num_kv_heads=2, head_dim=72),
        Heads(num_q_heads=20, num_kv_heads=2, head_dim=16),
        Heads(num_q_heads=2, num_kv_heads=1, head_dim=256),
    ],
    ids=str,
)
def test_shapes_of_heads_and_blocks(
    backend: NativeAttention, heads: Heads, block_size: int, dtype: torch.dtype
) -> None:
    step = make_step(
        [(150, 1), (40, 130), (7, 1), (30, 5)], window=None, block_size=block_size, heads=heads, dtype=dtype
    )
    actual, tolerance = attend(backend, step, step.cache.layer(1), None), TOLERANCES[dtype]
    torch.testing.assert_close(actual, step.expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("window", [None, 100, 700])
def test_long_requests_in_many_parts(backend: NativeAttention, window: int | None, dtype: torch.dtype) -> None:
    step = make_step(LONG, window=window, dtype=dtype, num_blocks=300)
    actual, tolerance = attend(backend, step, step.cache.layer(1), window), TOLERANCES[dtype]
    torch.testing.assert_close(actual, step.expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_the_number_of_threads_changes_no_bit(backend: NativeAttention, dtype: torch.dtype) -> None:
    outputs = []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        step = make_step(LONG, window=None, dtype=dtype, num_blocks=300)
        outputs.append(attend(backend, step, step.cache.layer(1), None))
    assert torch.equal(outputs[0], outputs[1]) and torch.equal(outputs[0], outputs[2])


@pytest.mark.parametrize("layout", ["block_major", "per_layer", "token_major", "padded"])
def test_any_strides(backend: NativeAttention, layout: str) -> None:
    step = make_step(BATCHES["mixed"], window=None, block_size=8)
    key, value = (relaid(view, layout) for view in step.cache.layer(1))
    actual = attend(backend, step, LayerKVCache(key, value), None)
    torch.testing.assert_close(actual, step.expected, atol=1e-5, rtol=1e-5)


def test_keys_and_values_are_written_to_their_slots(backend: NativeAttention) -> None:
    step = make_step([(14, 5)], window=None)
    layer = step.cache.layer(1)
    attend(backend, step, layer, None)
    (sequence,) = step.sequences
    for row, position in enumerate(range(14, 19)):
        slot = sequence.block_ids[position // 16], slice(None), position % 16
        assert torch.equal(layer.key[slot], step.key[row])
        assert torch.equal(layer.value[slot], step.value[row])
    assert step.cache.layer(0).key.isnan().all()


@pytest.mark.parametrize("name", ["decode", "later_chunk", "mixed"])
def test_a_corrupted_block_changes_the_output(backend: NativeAttention, name: str) -> None:
    step = make_step(BATCHES[name], window=None)
    layer = step.cache.layer(1)
    longest = max(step.sequences, key=lambda sequence: sequence.num_computed)
    layer.value[longest.block_ids[0]] += 1.0
    assert (attend(backend, step, layer, None) - step.expected).abs().max() > 1e-2


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("name", ["decode", "later_chunk"])
def test_a_poisoned_block_is_not_hidden(backend: NativeAttention, name: str, part: str) -> None:
    step = make_step(BATCHES[name], window=None)
    layer = step.cache.layer(1)
    getattr(layer, part)[step.sequences[0].block_ids[0], :, 3] = torch.nan
    assert attend(backend, step, layer, None).isnan().all()
