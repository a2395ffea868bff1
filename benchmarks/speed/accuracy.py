"""`make accuracy`: how often bf16 prefers the token that float32 prefers, here and in transformers; a verdict last.

Every token is teacher-forced. Prefill: prompt log probabilities of texts. Decode: the tokens that our engine draws
greedily in a batch, and what float32 and transformers' bf16 prefer after the same tokens. Exits with 1 on a miss.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks.speed.prompts import Prompts
from common.checkpoint import resolve_model
from common.config import DType, EngineConfig
from common.engine.build import build_engine
from common.engine.engine import Engine
from common.request import Leg, RequestId, SamplingParams

MIN_AGREEMENT = 0.97
# Decode and prefill each get at least 2,000 tokens.
NUM_TEXTS, TEXT_TOKENS = 8, 320
NUM_DECODED, PROMPT_TOKENS, NUM_NEW_TOKENS = 32, 48, 80
SEED = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced:
    """One teacher-forced text. `ours` is what our engine prefers after the tokens up to `first`, `first` + 1, …"""

    token_ids: tuple[int, ...]
    first: int
    ours: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Parts of `num_tokens` in which bf16 prefers what float32 does."""

    path: str
    num_tokens: int
    ours: float
    theirs: float

    @property
    def error(self) -> float:
        """Two standard errors of the difference."""
        spread = self.ours * (1 - self.ours) + self.theirs * (1 - self.theirs)
        return 2 * math.sqrt(spread / self.num_tokens)

    @property
    def holds(self) -> bool:
        return self.ours >= MIN_AGREEMENT and self.ours >= self.theirs - self.error


def measure(model: Path, num_texts: int, num_decoded: int, dtype: DType) -> list[Agreement]:
    prompts = Prompts(model)
    texts = [one.token_ids for one in prompts.requests(num_texts, TEXT_TOKENS, 1, seed=SEED)]
    begun = [one.token_ids for one in prompts.requests(num_decoded, PROMPT_TOKENS, 1, seed=SEED + 1)]
    config = EngineConfig(model=str(model), dtype=dtype, kv_memory="512MiB")
    engine = build_engine(config, hand_back_when_preempted=False).engine
    forced = {"prefill": list(_prefilled(engine, texts)), "decode": list(_decoded(engine, begun))}
    exact, rounded = (_load(model, one) for one in (torch.float32, torch.bfloat16))
    return [_agreement(path, some, exact, rounded) for path, some in forced.items()]


def _prefilled(engine: Engine, texts: Sequence[tuple[int, ...]]) -> Iterator[Forced]:
    for number, token_ids in enumerate(texts):
        sampling = SamplingParams(max_tokens=1, temperature=0.0, seed=0, prompt_logprobs=1, ignore_eos=True)
        engine.submit(_leg(f"text {number}", token_ids, sampling))
        (result,) = (output for output in _run(engine) if output.start is not None)
        told = result.start.prompt_logprobs
        yield Forced(token_ids=token_ids, first=1, ours=tuple(one.top[0].token_id for one in told))


def _decoded(engine: Engine, begun: Sequence[tuple[int, ...]]) -> Iterator[Forced]:
    sampling = SamplingParams(max_tokens=NUM_NEW_TOKENS, temperature=0.0, seed=0, ignore_eos=True)
    for number, token_ids in enumerate(begun):
        engine.submit(_leg(str(number), token_ids, sampling))
    drawn: dict[str, list[int]] = {}
    for output in _run(engine):
        drawn.setdefault(output.request_id, []).extend(output.token_ids)
    for number, token_ids in enumerate(begun):
        ours = tuple(drawn[str(number)])
        # The first token comes from prefill.
        yield Forced(token_ids=(*token_ids, *ours), first=len(token_ids) + 1, ours=ours[1:])


def _leg(name: str, token_ids: tuple[int, ...], sampling: SamplingParams) -> Leg:
    return Leg(
        request_id=RequestId(name), attempt=1, choice_indices=(0,), prompt_token_ids=token_ids, sampling=sampling
    )


def _run(engine: Engine) -> Iterator[Any]:
    while engine.has_work():
        yield from engine.step().tokens


def _load(model: Path, dtype: torch.dtype) -> Any:
    return AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval()


@torch.inference_mode()
def _agreement(path: str, forced: Sequence[Forced], exact: Any, rounded: Any) -> Agreement:
    num_tokens = num_ours = num_theirs = 0
    for one in forced:
        input_ids = torch.tensor([one.token_ids])  # [1, num_tokens]
        wanted, theirs = (
            model(input_ids).logits[0, one.first - 1 : one.first - 1 + len(one.ours)].float().argmax(-1)
            for model in (exact, rounded)
        )
        num_tokens += len(one.ours)
        num_ours += int((wanted == torch.tensor(one.ours)).sum())
        num_theirs += int((wanted == theirs).sum())
    return Agreement(path=path, num_tokens=num_tokens, ours=num_ours / num_tokens, theirs=num_theirs / num_tokens)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.accuracy", description=__doc__)
    parser.add_argument("--model", default="demo", help="model to compare (default: demo)")
    parser.add_argument("--dtype", default="bfloat16", help="of our engine (default: bfloat16)")
    options = parser.parse_args()
    found = measure(resolve_model(options.model), NUM_TEXTS, NUM_DECODED, DType(options.dtype))
    for one in found:
        print(
            f"{one.path}: {one.num_tokens:,} tokens, top-1 as in float32: ours {one.ours:.4f}, "
            f"transformers' bf16 {one.theirs:.4f} (two standard errors: {one.error:.4f})"
        )
    missed = [one.path for one in found if not one.holds]
    wanted = f"at least {MIN_AGREEMENT} and no worse than transformers"
    print(f"MISSED: {', '.join(missed)}: not {wanted}" if missed else f"OK: {wanted}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
