import math

import numpy as np
import pytest
import torch

from common.engine.penalty_counts import PenaltyCounts
from common.engine.philox import DrawKeys
from common.engine.random_draw import draw_tokens
from common.engine.sampler import Sampler, SamplingRow
from common.request import SamplingParams

EOS = 7


def make_row(
    *,
    logits_row: int = 0,
    choice_index: int = 0,
    position: int = 0,
    num_output_tokens: int = 0,
    prompt: tuple[int, ...] = (),
    outputs: tuple[int, ...] = (),
    **sampling: object,
) -> SamplingRow:
    params = SamplingParams(**{"seed": 1, "temperature": 0.0, **sampling})  # type: ignore[arg-type]
    penalties = PenaltyCounts(np.array(prompt, dtype="<u4"), np.array(outputs, dtype="<u4"))
    penalised = params.repetition_penalty != 1.0 or params.presence_penalty or params.frequency_penalty
    return SamplingRow(logits_row, params, choice_index, position, num_output_tokens, penalties if penalised else None)


def sample(logits: list[float], *, count: int = 1, **row: object) -> list[int]:
    """Tokens at positions 0, 1, … from the same logits."""
    rows = [make_row(position=position, **row) for position in range(count)]  # type: ignore[arg-type]
    return [token.token_id for token in Sampler(frozenset({EOS})).sample(torch.tensor([logits]), rows)]


def random_logits(num_rows: int, vocab_size: int = 50, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * 3


def test_greedy_takes_the_most_likely_and_of_equals_the_lowest_id() -> None:
    assert sample([0.0, 2.0, 1.0]) == [1]
    assert sample([0.0, 2.0, 2.0, 2.0]) == [1]


def test_draws_follow_the_distribution() -> None:
    logits = [0.0, 1.0, 2.0, -1.0]
    for temperature in (0.5, 1.0, 2.0):
        count = 5000
        drawn = np.bincount(sample(logits, count=count, temperature=temperature), minlength=4)
        weights = np.exp(np.array(logits) / temperature)
        expected = weights / weights.sum() * count
        assert ((drawn - expected) ** 2 / expected).sum() < 16.3  # chi-square, 3 degrees of freedom, p = 0.001


def test_unlikely_tokens_are_drawn_as_often_as_they_should() -> None:
    # Two favourites, and 3,000 tokens that each are too unlikely to race alone.
    logits = [0.0, -0.5, *[math.log(2e-5)] * 3000]
    count = 4000
    drawn = np.array(sample(logits, count=count, temperature=1.0))
    weights = np.array([1.0, math.exp(-0.5), 3000 * 2e-5])
    expected = weights / weights.sum() * count
    observed = np.array([(drawn == 0).sum(), (drawn == 1).sum(), (drawn > 1).sum()])
    assert ((observed - expected) ** 2 / expected).sum() < 13.8  # chi-square, 2 degrees of freedom, p = 0.001
    unlikely = drawn[drawn > 1]
    assert len(set(unlikely.tolist())) > 0.9 * len(unlikely)
    assert abs(np.mean(unlikely) - 1501) < 4 * 3000 / math.sqrt(12 * len(unlikely))


def test_masked_tokens_are_never_drawn() -> None:
    assert set(sample([-math.inf, 1.0, -math.inf, 1.0, -math.inf], count=200, temperature=1.0)) == {1, 3}
    assert set(sample([0.0, -math.inf, *[-10.0] * 500], count=50, temperature=0.01)) == {0}


def test_the_last_bits_of_the_logits_hardly_ever_change_a_draw() -> None:
    generator = torch.Generator().manual_seed(5)
    vocab_size, count = 20_000, 400
    logits = (torch.randn(count, vocab_size, generator=generator) * 3).sort(dim=-1, descending=True).values
    noise = torch.randn(count, vocab_size, generator=generator) * 1e-5
    params, positions = [SamplingParams(seed=1)] * count, np.arange(count, dtype=np.uint64)
    ones = np.ones(count, dtype=np.uint64)
    keys = DrawKeys(seeds=ones, choice_indices=ones, positions=positions)
    assert draw_tokens(logits, params, keys) == draw_tokens(logits + noise, params, keys)


def test_top_k_keeps_the_k_most_likely_and_their_equals() -> None:
    assert set(sample([0.0, 3.0, 2.0, 1.0], count=200, temperature=5.0, top_k=2)) == {1, 2}
    assert set(sample([0.0, 2.0, 2.0, 2.0], count=200, temperature=5.0, top_k=2)) == {1, 2, 3}
    assert set(sample([0.0, 3.0], count=200, temperature=50.0, top_k=9)) == {0, 1}


def test_top_p_keeps_the_smallest_nucleus() -> None:
    logits = [math.log(p) for p in (0.1, 0.5, 0.3, 0.1)]
    assert set(sample(logits, count=200, temperature=1.0, top_p=0.5)) == {1}
    assert set(sample(logits, count=200, temperature=1.0, top_p=0.51)) == {1, 2}
    assert set(sample(logits, count=300, temperature=1.0, top_p=0.81)) == {0, 1, 2, 3}


def test_top_p_is_exact_where_the_nucleus_is_large() -> None:
    logits = torch.zeros(1, 5000)
    logits[:, :4000] = torch.linspace(1.0, 0.5, 4000)
    weights = logits[0].double().exp()
    size = int((weights.sort(descending=True).values.cumsum(0) < 0.6 * weights.sum()).sum()) + 1
    assert size > 1024
    drawn = sample(logits[0].tolist(), count=2000, temperature=1.0, top_p=0.6)
    assert size - 20 < max(drawn) < size
    assert sample(logits[0].tolist(), temperature=1.0, top_p=1e-9) == [0]


def test_top_p_counts_after_top_k() -> None:
    logits = [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]
    assert set(sample(logits, count=200, temperature=1.0, top_k=2, top_p=0.57)) == {0}


def test_min_p_is_relative_to_the_most_likely() -> None:
    logits = [math.log(p) for p in (0.5, 0.26, 0.24)]
    assert set(sample(logits, count=200, temperature=1.0, min_p=0.5)) == {0, 1}


def test_extreme_temperatures_are_finite() -> None:
    assert set(sample([0.0, 1.0, -1.0], count=50, temperature=1e-300)) == {1}
    assert set(sample([0.0, 1.0, -1.0], count=200, temperature=100.0)) == {0, 1, 2}


def test_draws_depend_on_seed_choice_and_position_alone() -> None:
    logits = random_logits(16)
    rows = [
        make_row(
            logits_row=index,
            position=index * 3,
            choice_index=index % 3,
            temperature=0.7 + index / 10,
            seed=index * 977,
            top_p=0.9 if index % 2 else 1.0,
            top_k=index,
        )
        for index in range(16)
    ]
    sampler = Sampler(frozenset())
    together = [token.token_id for token in sampler.sample(logits, rows)]
    alone = [
        sampler.sample(logits[index : index + 1], [row._replace(logits_row=0)])[0].token_id
        for index, row in enumerate(rows)
    ]
    assert together == alone
    for change in ({"seed": 5}, {"choice_index": 1}):
        assert sample([0.0] * 50, count=20, temperature=1.0) != sample([0.0] * 50, count=20, temperature=1.0, **change)


def test_choices_of_one_row_draw_apart() -> None:
    rows = [make_row(choice_index=index, temperature=1.0) for index in range(20)]
    drawn = [token.token_id for token in Sampler(frozenset()).sample(torch.zeros(1, 50), rows)]
    assert len(set(drawn)) > 10


def test_repetition_penalty_covers_prompt_and_outputs() -> None:
    assert sample([1.0, 1.9, 2.0], repetition_penalty=1.1, prompt=(2,)) == [1]
    assert sample([1.0, 1.9, 2.0], repetition_penalty=1.1, outputs=(2,)) == [1]
    assert sample([-1.0, -1.1, -1.15], repetition_penalty=1.2, prompt=(0, 1)) == [2]


def test_frequency_penalty_grows_with_occurrences_among_the_outputs() -> None:
    assert sample([1.0, 2.0], frequency_penalty=0.4, outputs=(1, 1)) == [1]
    assert sample([1.0, 2.0], frequency_penalty=0.4, outputs=(1, 1, 1)) == [0]
    assert sample([1.0, 2.0], frequency_penalty=2.0, prompt=(1, 1, 1)) == [1]


def test_presence_penalty_counts_once() -> None:
    assert sample([1.0, 2.0], presence_penalty=0.9, outputs=(1,) * 9) == [1]
    assert sample([1.0, 2.0], presence_penalty=1.1, outputs=(1,)) == [0]
    assert sample([1.0, 2.0], presence_penalty=1.1, prompt=(1,)) == [1]


def test_penalty_counts_follow_new_tokens() -> None:
    counts = PenaltyCounts(np.array([3, 3, 4], dtype="<u4"), np.array([], dtype="<u4"))
    for token_id in [4, *range(100, 300), 4]:
        counts.add(token_id)
    occurrences = dict(zip(counts.token_ids.tolist(), counts.output_counts.tolist(), strict=True))
    assert occurrences == {3: 0, 4: 2, **dict.fromkeys(range(100, 300), 1)}


def test_logit_bias_is_added() -> None:
    assert sample([1.0, 2.0, 3.0], logit_bias={0: 5.0, 2: -100.0}) == [0]


def test_stops_are_not_drawn_before_min_tokens() -> None:
    logits = [0.0, 5.0, 1.0, 0.0, 0.0, 0.0, 0.0, 9.0]
    assert sample(logits, min_tokens=3, stop_token_ids=(1,), num_output_tokens=2) == [2]
    assert sample(logits, min_tokens=3, stop_token_ids=(1,), num_output_tokens=3) == [EOS]


def test_logprobs_are_of_the_raw_logits() -> None:
    logits = random_logits(3)
    rows = [
        make_row(logits_row=0, logprobs=2, logit_bias={5: 100.0}),
        make_row(logits_row=1),
        make_row(logits_row=2, logprobs=0),
    ]
    biased, without, chosen_only = Sampler(frozenset()).sample(logits, rows)
    expected = logits[0].log_softmax(0)
    assert biased.token_id == 5
    assert biased.logprob is not None
    assert biased.logprob.logprob == pytest.approx(float(expected[5]), abs=1e-5)
    assert biased.logprob.rank == 1 + int((expected > expected[5]).sum())
    values, token_ids = expected.topk(2)
    assert [top.token_id for top in biased.logprob.top] == token_ids.tolist()
    assert [top.logprob for top in biased.logprob.top] == pytest.approx(values.tolist(), abs=1e-5)
    assert without.logprob is None
    assert chosen_only.logprob is not None
    assert (chosen_only.logprob.rank, chosen_only.logprob.top) == (1, ())


def test_logits_are_not_changed() -> None:
    logits = random_logits(1)
    before = logits.clone()
    sampling = {"temperature": 0.5, "top_p": 0.5, "logit_bias": {1: 2.0}, "repetition_penalty": 2.0, "prompt": (1, 2)}
    Sampler(frozenset({EOS})).sample(logits, [make_row(min_tokens=4, **sampling)])  # type: ignore[arg-type]
    assert torch.equal(logits, before)
