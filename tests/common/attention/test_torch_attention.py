"""The backend against attention by the textbook, over every kind of batch that the engine makes."""

from __future__ import annotations

import pytest
import torch

from common.attention import torch_attention
from common.attention.layer_kv_cache import LayerKVCache
from common.attention.torch_attention import TorchAttention
from tests.support.attention_step import BATCHES, Step, make_step, relaid
from tests.support.attention_step import attend as attend_with

TOLERANCE = 1e-5


def attend(step: Step, layer: LayerKVCache, window: int | None) -> torch.Tensor:
    return attend_with(TorchAttention(), step, layer, window)


@pytest.mark.parametrize("window", [None, 1, 10, 40, 500])
@pytest.mark.parametrize("name", BATCHES)
def test_equals_the_textbook(name: str, window: int | None) -> None:
    step = make_step(BATCHES[name], window=window)
    torch.testing.assert_close(attend(step, step.cache.layer(1), window), step.expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("window", [None, 10])
def test_a_long_chunk_in_several_tiles(monkeypatch: pytest.MonkeyPatch, window: int | None) -> None:
    monkeypatch.setattr(torch_attention, "QUERY_TILE", 7)
    step = make_step([(20, 31), (0, 25)], window=window)
    torch.testing.assert_close(attend(step, step.cache.layer(1), window), step.expected, atol=TOLERANCE, rtol=TOLERANCE)


def test_many_requests_in_several_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_attention, "MAX_GATHERED_KEYS", 64)
    step = make_step([(30, 1), (25, 1), (20, 1), (18, 1), (31, 1), (200, 1)], window=None)
    torch.testing.assert_close(attend(step, step.cache.layer(1), None), step.expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("layout", ["block_major", "per_layer", "token_major", "padded"])
def test_any_strides(layout: str) -> None:
    step = make_step(BATCHES["mixed"], window=None, block_size=8)
    key, value = (relaid(view, layout) for view in step.cache.layer(1))
    actual = attend(step, LayerKVCache(key, value), None)
    torch.testing.assert_close(actual, step.expected, atol=TOLERANCE, rtol=TOLERANCE)


def test_keys_and_values_are_written_to_their_slots() -> None:
    step = make_step([(14, 5)], window=None)
    layer = step.cache.layer(1)
    attend(step, layer, None)
    (sequence,) = step.sequences
    for row, position in enumerate(range(14, 19)):
        slot = sequence.block_ids[position // 16], slice(None), position % 16
        assert torch.equal(layer.key[slot], step.key[row])
        assert torch.equal(layer.value[slot], step.value[row])
    assert step.cache.layer(0).key.isnan().all()


@pytest.mark.parametrize("name", ["decode", "later_chunk", "mixed"])
def test_a_corrupted_block_changes_the_output(name: str) -> None:
    step = make_step(BATCHES[name], window=None)
    layer = step.cache.layer(1)
    longest = max(step.sequences, key=lambda sequence: sequence.num_computed)
    layer.value[longest.block_ids[0]] += 1.0
    actual = attend(step, layer, None)
    assert (actual - step.expected).abs().max() > 1000 * TOLERANCE
