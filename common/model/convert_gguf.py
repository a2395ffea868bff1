"""`python -m common.model.convert_gguf FILE FOLDER`: writes a GGUF file as a Hugging Face folder in bfloat16."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def convert(gguf: Path, folder: Path) -> None:
    """Weights (dequantised, bf16 safetensors), config, generation config, tokenizer, chat template."""
    loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = loaded.config
    del config.quantization_config
    # A model that came from a GGUF file refuses to be saved: its weights move to a fresh one.
    fresh = type(loaded)(config)
    fresh.load_state_dict(loaded.state_dict())
    fresh = fresh.to(torch.bfloat16)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    fresh.generation_config = loaded.generation_config
    if tokenizer.eos_token_id is not None:
        fresh.generation_config.eos_token_id = tokenizer.eos_token_id
    fresh.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
