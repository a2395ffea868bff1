"""Draws tokens from truncated distributions, as a function of logits, parameters and draw keys alone.

Truncation is by value, never by sort order, so that ties are kept together on every device: all tokens at least as
likely as the k-th, all at least as likely as the one that fills top_p. The order is vLLM's: temperature, min_p,
top_k, top_p.

A draw is an exponential race (Gumbel-max in other words): token i arrives after -log(u_i) / weight_i, with a random
number of its own, and the first one wins. Rounding errors of the logits change the winner only when two arrive at
nearly the same moment. An inverse CDF is far touchier: where thousands of unlikely tokens share a sliver of the unit
interval, each boundary there moves with every logit (docs/sampling.md has the numbers).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from common.engine.philox import DrawKeys, uniforms
from common.request import SamplingParams

# Tokens less likely than this, relative to the most likely one, race as one with the sum of their weights; only when
# that one wins do they race among themselves. By the properties of exponential times the outcome has the same
# distribution, at a hundredth of the random numbers. csrc/draw.cpp has the same number.
FAVOURITE_WEIGHT = 2.0**-13
# The item number of the field of all others; token ids are below it.
FIELD_ITEM = 2**32 - 1
# A nucleus is looked for among so many of the most likely tokens, then among more, then among all: nearly all are
# found in the first, at a tenth of the cost of the second on a CPU.
NUCLEUS_GUESSES = (64, 1024)
# Rows worked on at once: on a CPU so few that the float64 work stays in cache and its buffers are reused.
CPU_ROWS = 8
DEVICE_ROWS = 256


def draw_tokens(
    logits: torch.Tensor,  # [num_rows, vocab_size] float32, -inf for tokens that must not be drawn
    sampling: Sequence[SamplingParams],
    keys: DrawKeys,  # of num_rows rows
) -> list[int]:
    """One token id per row."""
    num_rows = CPU_ROWS if logits.device.type == "cpu" else DEVICE_ROWS
    token_ids: list[int] = []
    for start in range(0, len(logits), num_rows):
        part = slice(start, start + num_rows)
        weights = _weights(logits[part], sampling[part])
        _keep_top_k(weights, sampling[part])
        _keep_top_p(weights, sampling[part])
        token_ids += _race(weights, keys[part])
    return token_ids


def _race(weights: torch.Tensor, keys: DrawKeys) -> list[int]:
    """The winner of each row."""
    favourites = weights >= FAVOURITE_WEIGHT  # the most likely token has weight 1
    rows, items = (index.cpu().numpy() for index in favourites.nonzero(as_tuple=True))
    favourite_weights = weights[favourites].cpu().numpy()
    field_weights = weights.masked_fill(favourites, 0.0).sum(dim=-1).cpu().numpy()
    times = _arrivals(keys, rows, items, favourite_weights)
    num_rows = len(weights)
    all_rows = np.arange(num_rows)
    field_times = _arrivals(keys, all_rows, np.full(num_rows, FIELD_ITEM), field_weights)
    ends = np.searchsorted(rows, all_rows, side="right")
    winners = []
    start = 0
    for row, end in enumerate(ends.tolist()):
        first = start + int(times[start:end].argmin())
        if times[first] <= field_times[row]:
            winners.append(int(items[first]))
        else:
            winners.append(_race_of_field(weights[row], favourites[row], keys, row))
        start = end
    return winners


def _race_of_field(weights: torch.Tensor, favourites: torch.Tensor, keys: DrawKeys, row: int) -> int:
    items = (~favourites & (weights > 0.0)).nonzero()[:, 0]
    times = _arrivals(keys, np.full(len(items), row), items.cpu().numpy(), weights[items].cpu().numpy())
    return int(items[int(times.argmin())])


def _arrivals(
    keys: DrawKeys, rows: npt.NDArray[np.int64], items: npt.NDArray[np.int64], weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Exponential times with the weights as rates; never, where a weight is 0."""
    with np.errstate(divide="ignore"):
        times: npt.NDArray[np.float64] = -np.log(uniforms(keys, rows, items)) / weights
    return times


def _weights(logits: torch.Tensor, sampling: Sequence[SamplingParams]) -> torch.Tensor:
    """[num_rows, vocab_size] float64: probabilities relative to the most likely token's, after min_p."""
    temperatures = torch.tensor([params.temperature for params in sampling], dtype=torch.float64, device=logits.device)
    weights = logits.double()
    weights -= weights.amax(dim=-1, keepdim=True)
    weights /= temperatures[:, None]
    weights.exp_()
    if any(params.min_p > 0.0 for params in sampling):
        least = torch.tensor([params.min_p for params in sampling], dtype=torch.float64, device=logits.device)
        weights *= weights >= least[:, None]
    return weights


def _keep_top_k(weights: torch.Tensor, sampling: Sequence[SamplingParams]) -> None:
    vocab_size = weights.shape[-1]
    rows = [row for row, params in enumerate(sampling) if 0 < params.top_k < vocab_size]
    if not rows:
        return
    counts = torch.tensor([sampling[row].top_k for row in rows], device=weights.device)
    selected = weights[rows]
    largest = selected.topk(int(counts.max()), dim=-1).values
    thresholds = largest.gather(1, counts[:, None] - 1)
    weights[rows] = selected * (selected >= thresholds)


def _keep_top_p(weights: torch.Tensor, sampling: Sequence[SamplingParams]) -> None:
    rows = [row for row, params in enumerate(sampling) if params.top_p < 1.0]
    if not rows:
        return
    selected = weights[rows]
    shares = torch.tensor([sampling[row].top_p for row in rows], dtype=torch.float64, device=weights.device)
    wanted = shares[:, None] * selected.sum(dim=-1, keepdim=True)
    thresholds = torch.empty_like(wanted)
    missing = torch.arange(len(rows), device=weights.device)
    for guess in (*NUCLEUS_GUESSES, weights.shape[-1]):
        ordered = selected[missing].topk(min(guess, weights.shape[-1]), dim=-1).values
        thresholds[missing], found = _nucleus_thresholds(ordered, wanted[missing])
        missing = missing[~found[:, 0]]
        if not len(missing):
            break
    weights[rows] = selected * (selected >= thresholds)


def _nucleus_thresholds(ordered: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight of the token that brings the sum to `wanted` [num_rows, 1], and whether `ordered` reaches so far."""
    cumulative = ordered.cumsum(dim=-1)
    index = torch.searchsorted(cumulative, wanted, right=False)
    last = ordered.shape[-1] - 1
    return ordered.gather(1, index.clamp(max=last)), index <= last
