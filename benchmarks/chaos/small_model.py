"""A Llama of random weights with a vocabulary so small that sampling costs nothing: here the machinery is tested."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedTokenizerFast

from benchmarks.random_model import byte_tokenizer, save_random_llama

EOS = "</s>"


def save_small_model(folder: Path) -> Path:
    """Writes a float32 model with a tokenizer of bytes; the same one each time."""
    tokenizer = byte_tokenizer(EOS)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS).save_pretrained(folder)
    return save_random_llama(
        folder,
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
