"""How often rounding errors of the logits change a seeded draw: `python -m benchmarks.draw_stability`.

The demo model computes the same text in one pass and in chunks of 37 tokens, in float32; both logits then draw with
the same numbers, by the engine's race and by an inverse CDF over all tokens in token-id order.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from common.checkpoint import resolve_model
from common.engine.philox import DrawKeys
from common.engine.random_draw import draw_tokens
from common.request import SamplingParams

CHUNK = 37
NUM_TOKENS = 1600
TEXT = Path(__file__).parent.parent / "docs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="seeds to draw with")
    num_seeds = parser.parse_args().seeds
    whole, chunked = logits_both_ways()
    print(f"largest difference of a logit: {(whole - chunked).abs().max():.1e}")
    changed = {"race": 0, "inverse CDF": 0}
    cumulative = cumulated(whole), cumulated(chunked)
    for seed in range(num_seeds):
        uniforms = np.random.default_rng(seed).random(len(whole))
        drawn = [inverse_cdf(either, uniforms) for either in cumulative]
        changed["inverse CDF"] += int((drawn[0] != drawn[1]).sum())
        pairs = zip(race(whole, seed), race(chunked, seed), strict=True)
        changed["race"] += sum(first != second for first, second in pairs)
    for method, count in changed.items():
        print(f"{method:<12} {count} of {num_seeds * len(whole)} draws changed")


def logits_both_ways() -> tuple[torch.Tensor, torch.Tensor]:
    """[num_tokens, vocab_size] float32, computed at once and in chunks."""
    folder = resolve_model("demo")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    text = "\n".join(path.read_text() for path in sorted(TEXT.glob("*.md")))
    ids = torch.tensor([AutoTokenizer.from_pretrained(folder)(text)["input_ids"][:NUM_TOKENS]])
    parts, cache = [], None
    with torch.inference_mode():
        whole = model(ids).logits[0].float()
        for start in range(0, ids.shape[1], CHUNK):
            output = model(ids[:, start : start + CHUNK], cache=cache, use_cache=True)
            cache = output.cache
            parts.append(output.logits[0].float())
    return whole, torch.cat(parts)


def race(logits: torch.Tensor, seed: int) -> list[int]:
    count = len(logits)
    keys = DrawKeys(
        seeds=np.full(count, seed, dtype=np.uint64),
        choice_indices=np.zeros(count, dtype=np.uint64),
        positions=np.arange(count, dtype=np.uint64),
    )
    return draw_tokens(logits, [SamplingParams(seed=seed)] * count, keys)


def cumulated(logits: torch.Tensor) -> torch.Tensor:
    """[num_tokens, vocab_size] float64."""
    weights = logits.double()
    weights -= weights.amax(dim=-1, keepdim=True)
    return weights.exp_().cumsum(dim=-1)


def inverse_cdf(cumulative: torch.Tensor, uniforms: npt.NDArray[np.float64]) -> torch.Tensor:
    targets = torch.from_numpy(uniforms)[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, targets, right=True)[:, 0]


if __name__ == "__main__":
    main()
