"""The backend against attention by the textbook, over every kind of batch that the engine makes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from common.attention import torch_attention
from common.attention.layer_kv_cache import LayerKVCache
from common.attention.torch_attention import TorchAttention
from common.kernels import reference
from tests.support.paged import PagedCache, PagedSequence, make_batch

NUM_Q_HEADS, NUM_KV_HEADS, HEAD_DIM = 6, 2, 8
TOLERANCE = 1e-5

# (tokens already in the cache, tokens of this step) of each request
BATCHES = {
    "first_chunk": [(0, 21)],
    "one_token_prompt": [(0, 1)],
    "later_chunk": [(19, 14)],
    "decode": [(37, 1)],
    "decode_of_one_length": [(31, 1), (31, 1)],
    "decode_at_block_end": [(15, 1), (31, 1)],
    "decode_of_many_lengths": [(0, 1), (5, 1), (16, 1), (33, 1), (150, 1), (17, 1)],
    "mixed": [(0, 40), (12, 1), (24, 9), (70, 1), (0, 3), (3, 1)],
    "two_first_chunks": [(0, 18), (0, 33)],
}


@dataclass
class Step:
    """A step's inputs and what attention by the textbook gives for them."""

    cache: PagedCache
    sequences: list[PagedSequence]
    counts: list[int]
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    expected: torch.Tensor  # [num_tokens, num_q_heads * head_dim]


def make_step(lengths: list[tuple[int, int]], *, window: int | None, block_size: int = 16) -> Step:
    """Earlier keys and values are in the cache, whose other slots hold NaN."""
    generator = torch.Generator().manual_seed(1)
    cache = PagedCache(num_blocks=64, num_layers=2, num_kv_heads=NUM_KV_HEADS, block_size=block_size, head_dim=HEAD_DIM)
    sequences, queries, keys, values, outputs = [], [], [], [], []
    for context, count in lengths:
        sequence = PagedSequence([0] * (context + count))
        query = torch.randn(count, NUM_Q_HEADS, HEAD_DIM, generator=generator)
        key = torch.randn(context + count, NUM_KV_HEADS, HEAD_DIM, generator=generator)
        value = torch.randn(context + count, NUM_KV_HEADS, HEAD_DIM, generator=generator)
        for position in range(context):
            if position % block_size == 0:
                sequence.block_ids.append(cache.allocate())
            slot = sequence.block_ids[-1], slice(None), position % block_size
            cache.layer(1).key[slot], cache.layer(1).value[slot] = key[position], value[position]
        sequence.num_computed = context
        outputs.append(reference.attention(query, key, value, window).flatten(1))
        sequences.append(sequence)
        queries.append(query)
        keys.append(key[context:])
        values.append(value[context:])
    return Step(
        cache=cache,
        sequences=sequences,
        counts=[count for _, count in lengths],
        query=torch.cat(queries),
        key=torch.cat(keys),
        value=torch.cat(values),
        expected=torch.cat(outputs),
    )


def attend(step: Step, layer: LayerKVCache, window: int | None) -> torch.Tensor:
    backend = TorchAttention()
    batch = make_batch(step.cache, list(zip(step.sequences, step.counts, strict=True)))
    plan = backend.plan(batch, layer, (window, None) if window else (None,))
    return backend.attend(plan, step.query, step.key, step.value, layer, scale=HEAD_DIM**-0.5, window=window)


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


def relaid(view: torch.Tensor, layout: str) -> torch.Tensor:
    """The same numbers with the strides of another pool."""
    match layout:
        case "per_layer":
            return view.contiguous()
        case "token_major":  # [num_blocks, block_size, num_kv_heads, head_dim] in memory
            return view.transpose(1, 2).contiguous().transpose(1, 2)
        case "padded":
            return torch.cat((view, view), dim=-1)[..., :HEAD_DIM]
        case _:
            return view


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
