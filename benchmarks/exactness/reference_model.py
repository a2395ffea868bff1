"""transformers' own greedy generate in float32, one unpadded prompt at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from benchmarks.exactness.reference import Reference


class ReferenceModel:
    """Holds the model in float32. Not for threads."""

    def __init__(self, folder: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._model.eval()
        # The served side goes on after EOS; masking it instead, as min_new_tokens does, would change tokens.
        self._model.generation_config = GenerationConfig(do_sample=False, eos_token_id=None, pad_token_id=0)

    def generate(self, name: str, prompt_token_ids: Sequence[int], num_new_tokens: int) -> Reference:
        """Exactly `num_new_tokens` greedy tokens, with each step's gap and runner-up."""
        input_ids = torch.tensor([list(prompt_token_ids)])  # [1, num_tokens]
        answer = self._model.generate(
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            max_new_tokens=num_new_tokens,
            output_logits=True,
            return_dict_in_generate=True,
        )
        token_ids = answer.sequences[0, input_ids.shape[1] :].tolist()
        top = torch.stack(answer.logits)[:, 0].float().topk(2)  # [num_new_tokens, 2]
        assert len(token_ids) == num_new_tokens and top.indices[:, 0].tolist() == token_ids
        gaps = (top.values[:, 0] - top.values[:, 1]).tolist()
        return Reference(
            name=name,
            prompt_token_ids=tuple(prompt_token_ids),
            token_ids=tuple(token_ids),
            gaps=tuple(float(f"{gap:.4g}") for gap in gaps),
            runner_ups=tuple(top.indices[:, 1].tolist()),
        )
