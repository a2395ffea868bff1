"""Whether an answer is the same whatever the rounding: only such answers can show what a fault has done to them.

Sums of floats depend on what else is in the batch, so two tokens that are almost equally good may change places in a
fleet without any fault. Questions whose answers have such a place are not asked.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from benchmarks.chaos.workload import Question, Reference
from common.engine.penalty_counts import PenaltyCounts
from common.engine.sampler import Sampler, SamplingRow
from common.request import SamplingParams

# Ten times what batches and chunks were seen to change (logits of up to 10, float32).
NOISE = 1e-4
NUM_TRIES = 4


class Steadiness:
    """Holds the model in float32."""

    def __init__(self, folder: Path) -> None:
        disable_progress_bar()
        torch.set_num_threads(1)  # the fleet needs the cores, too
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._sampler = Sampler(frozenset())

    def is_steady(self, question: Question, reference: Reference) -> bool:
        """Whether every token is drawn again from logits with a little noise in them."""
        return all(self._is_steady(question, index, choice.token_ids) for index, choice in enumerate(reference.choices))

    def _is_steady(self, question: Question, choice_index: int, token_ids: tuple[int, ...]) -> bool:
        input_ids = torch.tensor([[*question.prompt, *token_ids]])  # [1, num_tokens]
        with torch.inference_mode():
            logits = self._model(input_ids).logits[0, len(question.prompt) - 1 : -1].float()  # [num_new, vocab_size]
        rows = _rows(question, choice_index, token_ids)
        noise = torch.Generator().manual_seed(0)
        for _ in range(NUM_TRIES):
            noisy = logits + NOISE * (2 * torch.rand(logits.shape, generator=noise) - 1)
            if [token.token_id for token in self._sampler.sample(noisy, rows)] != list(token_ids):
                return False
        return True


def _rows(question: Question, choice_index: int, token_ids: tuple[int, ...]) -> list[SamplingRow]:
    sampling = _sampling(question)
    prompt, answer = np.array(question.prompt, dtype="<u4"), np.array(token_ids, dtype="<u4")
    return [
        SamplingRow(
            logits_row=place,
            sampling=sampling,
            choice_index=choice_index,
            position=len(prompt) + place,
            num_output_tokens=place,
            penalties=PenaltyCounts(prompt, answer[:place]) if sampling.repetition_penalty != 1.0 else None,
        )
        for place in range(len(token_ids))
    ]


def _sampling(question: Question) -> SamplingParams:
    names = ("temperature", "top_p", "seed", "repetition_penalty", "presence_penalty", "frequency_penalty")
    return SamplingParams(**{name: value for name, value in question.options.items() if name in names})
