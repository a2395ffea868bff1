"""A tiny Llama with random weights and the demo model's tokenizer: for tests where speed matters, not sense."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.random_model import save_random_llama

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")


def save_tiny_model(folder: Path, tokenizer_folder: Path) -> Path:
    """Writes a float32 model of a few megabytes; the same one each time."""
    save_random_llama(
        folder,
        vocab_size=49_152,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    for name in TOKENIZER_FILES:
        if (tokenizer_folder / name).exists():
            shutil.copy(tokenizer_folder / name, folder / name)
    return folder
