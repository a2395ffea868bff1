"""Draws tokens from truncated distributions, as a function of logits, parameters and one uniform number each.

Truncation is by value, never by sort order, so that ties are kept together on every device: all tokens at least as
likely as the k-th, all at least as likely as the one that fills top_p. The order is vLLM's: temperature, min_p,
top_k, top_p.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from common.request import SamplingParams

# A nucleus is looked for among so many of the most likely tokens, then among more, then among all: nearly all are
# found in the first, at a tenth of the cost of the second on a CPU.
NUCLEUS_GUESSES = (64, 1024)
# Rows worked on at once: on a CPU so few that the float64 work stays in cache and its buffers are reused.
CPU_ROWS = 8
DEVICE_ROWS = 256


def draw_tokens(
    logits: torch.Tensor,  # [num_rows, vocab_size] float32, -inf for tokens that must not be drawn
    sampling: Sequence[SamplingParams],
    uniforms: npt.NDArray[np.float64],  # [num_rows] in [0, 1)
) -> list[int]:
    """One token id per row: inverse CDF over the kept tokens in token-id order, accumulated in float64."""
    num_rows = CPU_ROWS if logits.device.type == "cpu" else DEVICE_ROWS
    token_ids: list[int] = []
    for start in range(0, len(logits), num_rows):
        part = slice(start, start + num_rows)
        token_ids += _draw_part(logits[part], sampling[part], uniforms[part])
    return token_ids


def _draw_part(
    logits: torch.Tensor, sampling: Sequence[SamplingParams], uniforms: npt.NDArray[np.float64]
) -> list[int]:
    weights = _weights(logits, sampling)
    _keep_top_k(weights, sampling)
    _keep_top_p(weights, sampling)
    cumulative = weights.cumsum(dim=-1)
    totals = cumulative[:, -1:].contiguous()
    targets = torch.from_numpy(uniforms).to(weights.device)[:, None] * totals
    drawn = torch.searchsorted(cumulative, targets, right=True)
    # u * total may round up to total: the last kept token then.
    last_kept = torch.searchsorted(cumulative, totals, right=False)
    token_ids: list[int] = torch.minimum(drawn, last_kept)[:, 0].tolist()
    return token_ids


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
