"""transformers' `generate`: one batch of prompts of equal length, to its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig, StoppingCriteria, StoppingCriteriaList

from benchmarks.speed.request import Answer, Request


class StepClock(StoppingCriteria):  # type: ignore[misc]
    """Stops nothing; notes when each step has ended."""

    def __init__(self) -> None:
        self.times_s: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        self.times_s.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)  # [num_requests]


class TransformersEngine:
    """Not for threads."""

    def __init__(self, model: Any) -> None:
        self._model = model
        # An EOS ends nothing: lengths are fixed.
        self._model.generation_config = GenerationConfig(do_sample=False, eos_token_id=None, pad_token_id=0)
        self.version = transformers.__version__

    def run(self, requests: Sequence[Request], concurrency: int | None) -> list[Answer]:
        assert concurrency is None, "a batch has a fixed size here"
        input_ids = torch.tensor([one.token_ids for one in requests])  # [num_requests, num_tokens]
        clock = StepClock()
        began_s = time.perf_counter()
        with torch.inference_mode():
            self._model.generate(
                input_ids,
                attention_mask=torch.ones_like(input_ids),
                max_new_tokens=requests[0].max_tokens,
                stopping_criteria=StoppingCriteriaList([clock]),
            )
        times_s = tuple(time_s - began_s for time_s in clock.times_s)
        return [Answer(sent_s=0.0, times_s=times_s) for _ in requests]


def load(model: str, num_threads: int) -> TransformersEngine:
    torch.set_num_threads(num_threads)
    return TransformersEngine(AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).eval())
