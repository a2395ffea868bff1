"""Small Llamas of random weights: for benchmarks of everything but the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils.logging import disable_progress_bar

VOCAB_SIZE = 1024
WEIGHT_SCALE = 4.0  # as initialised, all logits would be nearly equal


def save_random_model(folder: Path, *, hidden_size: int = 256, num_layers: int = 4, max_model_len: int = 4096) -> Path:
    """Writes one of a few million weights in float32, with a tokenizer of bytes; returns the folder."""
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return save_random_llama(
        folder,
        vocab_size=VOCAB_SIZE,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=max_model_len,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )


def save_random_llama(folder: Path, **config: Any) -> Path:
    """Writes config.json and float32 weights, the same ones each time; returns the folder. `config`: LlamaConfig's."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = LlamaForCausalLM(LlamaConfig(**config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(WEIGHT_SCALE)
    disable_progress_bar()
    model.save_pretrained(folder)
    return folder


def byte_tokenizer(*special_tokens: str) -> Tokenizer:
    """A token for each byte, behind the special ones."""
    tokens = [*special_tokens, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
