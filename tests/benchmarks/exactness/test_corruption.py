"""The comparison fails when one KV block is corrupted between prefill and decode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.exactness.compare import compare_tokens
from benchmarks.exactness.lazy_reference_model import LazyReferenceModel
from benchmarks.exactness.reference import Reference, load_references
from tests.support.engine_pair import EnginePair

NUM_NEW_TOKENS = 32
BLOCK_SIZE = 16


@pytest.fixture(scope="module")
def shared_pair(demo_model: Path) -> EnginePair:
    return EnginePair(demo_model, block_size=BLOCK_SIZE)


@pytest.fixture
def pair(shared_pair: EnginePair) -> Iterator[EnginePair]:
    yield shared_pair
    shared_pair.reset()


@pytest.fixture(scope="module")
def source(demo_model: Path) -> LazyReferenceModel:
    return LazyReferenceModel(demo_model)


@pytest.fixture(scope="module")
def reference() -> Reference:
    (found,) = (one for one in load_references().references if one.name == "german_257")
    return found.first(NUM_NEW_TOKENS)


def test_an_unchanged_transfer_is_exact(pair: EnginePair, reference: Reference, source: LazyReferenceModel) -> None:
    served = pair.generate(reference.prompt_token_ids, NUM_NEW_TOKENS)
    assert compare_tokens(served, reference, source).failure is None


@pytest.mark.parametrize("corrupted", [0, 8, 15])
def test_one_corrupted_block_is_seen(
    pair: EnginePair, reference: Reference, source: LazyReferenceModel, corrupted: int
) -> None:
    def negate(logical_block: int, data: npt.NDArray[np.uint8]) -> None:
        if logical_block == corrupted:
            data.view(np.float32)[:] *= -1

    served = pair.generate(reference.prompt_token_ids, NUM_NEW_TOKENS, negate)
    assert served[0] == reference.token_ids[0], "the first token comes from prefill, which is whole"
    assert compare_tokens(served, reference, source).failure is not None


def test_two_exchanged_blocks_are_seen(pair: EnginePair, reference: Reference, source: LazyReferenceModel) -> None:
    kept: dict[int, npt.NDArray[np.uint8]] = {}

    def exchange(logical_block: int, data: npt.NDArray[np.uint8]) -> None:
        kept[logical_block] = data.copy()
        if logical_block == 9:
            data[:] = kept[3]

    served = pair.generate(reference.prompt_token_ids, NUM_NEW_TOKENS, exchange)
    assert compare_tokens(served, reference, source).failure is not None


def test_a_block_that_never_came_is_seen(pair: EnginePair, reference: Reference, source: LazyReferenceModel) -> None:
    def lose(logical_block: int, data: npt.NDArray[np.uint8]) -> None:
        if logical_block == 5:
            data[:] = 0

    served = pair.generate(reference.prompt_token_ids, NUM_NEW_TOKENS, lose)
    assert compare_tokens(served, reference, source).failure is not None
