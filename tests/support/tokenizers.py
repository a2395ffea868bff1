"""Small tokenizers of each kind."""

from __future__ import annotations

from collections.abc import Callable

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. You are a helpful assistant named SmolLM, trained by Hugging Face.",
    "def main() -> None:\n    print('hello, world')\n\treturn None  # done",
    "Čau světe, příliš žluťoučký kůň. Größe, naïve café, œuvre. Привет, мир! 日本語のテキスト。 안녕하세요 🙂👩‍👩‍👧",
] * 4

CHAT_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>"]


def byte_level_tokenizer() -> Tokenizer:
    """GPT-2, Llama 3, Qwen, SmolLM: merges over bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=CHAT_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    # Not special: shown when decoded, as in Qwen3.
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think> é", normalized=False)])
    return tokenizer


def byte_fallback_tokenizer() -> Tokenizer:
    """Llama 2, Mistral: words that begin with ▁, and byte tokens for what the vocabulary lacks."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for token in [*(f"<0x{byte:02X}>" for byte in range(256)), "▁"]:
        vocabulary[token] = len(vocabulary)
    merges: list[tuple[str, str]] = []
    for word in ["▁hello", "▁world", "▁the", "▁a", "lo", "▁▁"]:
        for character in word:
            vocabulary.setdefault(character, len(vocabulary))
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                vocabulary[word[:end]] = len(vocabulary)
                merges.append((word[: end - 1], word[end - 1]))
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")])
    return tokenizer


def gguf_llama_tokenizer() -> Tokenizer:
    """What transformers makes of a GGUF file's SentencePiece vocabulary: Replace comes after Fuse."""
    tokenizer = byte_fallback_tokenizer()
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def gemma_tokenizer() -> Tokenizer:
    tokenizer = byte_fallback_tokenizer()
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def metaspace_tokenizer() -> Tokenizer:
    tokenizer = byte_fallback_tokenizer()
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def word_tokenizer() -> Tokenizer:
    tokenizer = byte_fallback_tokenizer()
    tokenizer.decoder = None
    return tokenizer


BUILDERS: dict[str, Callable[[], Tokenizer]] = {
    "byte_level": byte_level_tokenizer,
    "byte_fallback": byte_fallback_tokenizer,
    "gguf_llama": gguf_llama_tokenizer,
    "gemma": gemma_tokenizer,
    "metaspace": metaspace_tokenizer,
    "words": word_tokenizer,
}
