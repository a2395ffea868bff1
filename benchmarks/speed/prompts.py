"""English prompts of an exact number of tokens, no two of which begin alike.

Each is the text of its own tokens: sent as text or as ids, an engine computes the same tokens.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from tokenizers import Tokenizer

from benchmarks.speed.request import Request

TEXTS = Path(__file__).parents[1] / "exactness" / "texts"
TEXT_NAMES = ("english_harbour", "english_letter", "english_manual", "dialogue", "recipe", "mathematics", "sonnet")
MAX_NUMBER = 10**8
MAX_TRIES = 100


class Prompts:
    """Prompts in the tokens of one model's tokenizer. The same seed gives the same prompts."""

    def __init__(self, model: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        texts = " ".join((TEXTS / f"{name}.txt").read_text(encoding="utf-8") for name in TEXT_NAMES)
        self._sentences = [one.strip() for one in re.findall(r"[^.!?]+[.!?]", " ".join(texts.split()))]

    def requests(
        self, count: int, num_tokens: int, max_tokens: int, *, seed: int, shared_tokens: int = 0
    ) -> list[Request]:
        """`count` prompts of `num_tokens`, whose first `shared_tokens` are the same."""
        draw = random.Random(seed)
        shared = self._draw("", draw, shared_tokens) if shared_tokens else ""
        texts = [self._draw(shared, draw, num_tokens) for _ in range(count)]
        return [Request(text=text, token_ids=tuple(self._encode(text)), max_tokens=max_tokens) for text in texts]

    def _draw(self, beginning: str, draw: random.Random, num_tokens: int) -> str:
        """A text of exactly so many tokens: where a cut splits a character or a word that encodes otherwise alone,
        another is drawn."""
        for _ in range(MAX_TRIES):
            # A number first, so that no prompt finds a block of another one in a prefix cache.
            text = f"{beginning} {draw.randrange(MAX_NUMBER)}:".strip()
            while len(token_ids := self._encode(text)) < num_tokens:
                text += "".join(f" {sentence}" for sentence in draw.sample(self._sentences, 8))
            text = self._tokenizer.decode(token_ids[:num_tokens], skip_special_tokens=False)
            if self._encode(text) == token_ids[:num_tokens]:
                return text
        raise AssertionError(f"no text of exactly {num_tokens} tokens in {MAX_TRIES} tries")

    def _encode(self, text: str) -> list[int]:
        token_ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return token_ids
