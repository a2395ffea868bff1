"""Native draws are those of the torch path, for every kind of distribution and truncation."""

from __future__ import annotations

import random

import pytest
import torch

from common.engine.native_draw import Draw, draw_natively
from common.engine.sampler import Sampler, SamplingRow
from common.errors import EngineError
from common.kernels.cpu.abi import ISA_NAMES
from common.kernels.cpu.library import CpuLibrary
from common.request import SamplingParams
from tests.support.native import native_library


@pytest.fixture(params=ISA_NAMES.values())
def library(request: pytest.FixtureRequest) -> CpuLibrary:
    return native_library(request.param)


def tokens(library: CpuLibrary | None, logits: torch.Tensor, rows: list[SamplingRow]) -> list[int]:
    return [token.token_id for token in Sampler(frozenset({0}), library).sample(logits, rows)]


def random_logits(draw: random.Random, generator: torch.Generator) -> torch.Tensor:
    """Flat to peaked, some with equal values, some with tokens that must not be drawn."""
    vocab_size = draw.choice((1, 5, 17, 100, 1000, 20_000))
    logits = torch.randn(draw.choice((1, 3, 8)), vocab_size, generator=generator) * draw.choice(
        (0.0, 0.1, 1.0, 3.0, 9.0)
    )
    if draw.random() < 0.25:
        logits = (2 * logits).round() / 2
    if draw.random() < 0.25:
        logits[:, : vocab_size // 2] = float("-inf")
    return logits


@pytest.mark.parametrize("seed", range(8))
def test_the_tokens_are_those_of_the_torch_path(library: CpuLibrary, seed: int) -> None:
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    for _ in range(25):
        logits = random_logits(draw, generator)
        rows = [
            SamplingRow(
                logits_row,
                SamplingParams(
                    temperature=draw.choice((0.01, 0.3, 0.7, 1.0, 2.0, 50.0)),
                    top_k=draw.choice((0, 0, 1, 5, 50, 1000, 3000)),
                    top_p=draw.choice((1.0, 1.0, 0.1, 0.5, 0.9, 0.999)),
                    min_p=draw.choice((0.0, 0.0, 0.05, 0.5, 1e-6)),
                    seed=draw.getrandbits(64),
                ),
                draw.randrange(4),
                draw.randrange(5000),
                3,
            )
            for logits_row in range(len(logits))
        ]
        assert tokens(library, logits, rows) == tokens(None, logits, rows), [row.sampling for row in rows]


@pytest.mark.parametrize("temperature", [1e-5, 1e-20, 1e-38, 1e-40, 1e-300, 5e-324])
@pytest.mark.parametrize("changes", [{}, {"min_p": 0.5}, {"top_k": 5}, {"top_p": 0.9}], ids=str)
def test_next_to_no_temperature_draws_the_most_likely(
    library: CpuLibrary, temperature: float, changes: dict[str, float]
) -> None:
    logits = torch.randn(4, 1000, generator=torch.Generator().manual_seed(3))
    logits[1, 500:] = float("-inf")
    sampling = SamplingParams(temperature=temperature, seed=5, **changes)  # type: ignore[arg-type]
    rows = [SamplingRow(index, sampling, 0, 7, 3) for index in range(4)]
    assert tokens(library, logits, rows) == tokens(None, logits, rows) == logits.argmax(dim=1).tolist()


def test_what_a_row_draws_depends_on_the_row_alone(library: CpuLibrary) -> None:
    logits = torch.randn(4, 5000, generator=torch.Generator().manual_seed(1)) * 3
    draws = [Draw(index % 4, SamplingParams(temperature=1.0), 7 + index, 0, 11) for index in range(16)]
    together = draw_natively(library, logits, draws, num_threads=2)
    assert together == [draw_natively(library, logits, [one], num_threads=1)[0] for one in draws]
    # A view with other columns beside, and one that is not contiguous.
    wide = torch.cat((logits, torch.full((4, 3), 99.0)), dim=1)
    assert draw_natively(library, wide[:, :5000], draws, num_threads=2) == together
    assert draw_natively(library, logits.T.contiguous().T, draws, num_threads=2) == together


def test_frequencies_are_the_probabilities(library: CpuLibrary) -> None:
    """The field of all unlikely tokens, too, gets its share."""
    logits = torch.full((1, 40_001), -11.0)
    logits[0, 123] = 0.0
    share = 40_000 * torch.tensor(-11.0).exp().item()
    draws = [Draw(0, SamplingParams(temperature=1.0), 3, 0, position) for position in range(20_000)]
    drawn = draw_natively(library, logits, draws, num_threads=2)
    unlikely = [token_id for token_id in drawn if token_id != 123]
    assert len(unlikely) / len(drawn) == pytest.approx(share / (1 + share), abs=0.015)
    assert len(set(unlikely)) > 0.8 * len(unlikely)


def test_one_token_that_may_be_drawn_is_drawn(library: CpuLibrary) -> None:
    logits = torch.full((1, 300), float("-inf"))
    logits[0, 299] = -5.0
    for sampling in (SamplingParams(temperature=1.0), SamplingParams(temperature=1.0, top_k=5, top_p=0.5, min_p=0.1)):
        assert draw_natively(library, logits, [Draw(0, sampling, 1, 0, 0)], num_threads=1) == [299]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("limits", [{}, {"top_k": 5}, {"top_k": 2000}, {"top_p": 0.5}, {"min_p": 0.1}, {"min_p": 1e-6}])
def test_no_token_is_made_up(library: CpuLibrary, value: float, limits: dict[str, float]) -> None:
    sampling = SamplingParams(temperature=1.0, **limits)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="not finite"):
        draw_natively(library, torch.full((1, 3000), value), [Draw(0, sampling, 1, 0, 0)], num_threads=1)
