"""Lengths of real chat requests: the Azure conversation trace of 2023, scaled down to a small machine."""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from pathlib import Path

SCALE = 4  # a request of the trace has 1,155 tokens in and 211 out on average; two cores serve a quarter of that
MAX_PROMPT_TOKENS = 1024
MAX_OUTPUT_TOKENS = 128
MIN_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Lengths:
    prompt_tokens: int
    output_tokens: int


class AzureLengths:
    """Draws pairs as they are in the trace, so that long prompts keep their answers' lengths."""

    def __init__(self, trace: Path) -> None:
        with open(trace, newline="", encoding="utf-8") as lines:
            self._pairs = [
                Lengths(
                    _scaled(int(row["ContextTokens"]), MAX_PROMPT_TOKENS),
                    _scaled(int(row["GeneratedTokens"]), MAX_OUTPUT_TOKENS),
                )
                for row in csv.DictReader(lines)
            ]

    def draw(self, source: random.Random) -> Lengths:
        return source.choice(self._pairs)


def _scaled(num_tokens: int, limit: int) -> int:
    return max(MIN_TOKENS, min(limit, round(num_tokens / SCALE)))
