"""A multi-turn workload: conversations that share a system prompt and grow by a turn each time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Conversation:
    """Token ids so far: system prompt, then turns and answers. Owned by the driver."""

    number: int
    token_ids: list[int]
    draw: random.Random
    turns_left: int
    answers: list[tuple[int, ...]] = field(default_factory=list)

    def next_prompt(self, turn_tokens: int, vocab_size: int) -> list[int]:
        """The prompt of the next turn."""
        self.turns_left -= 1
        self.token_ids += [self.draw.randrange(3, vocab_size) for _ in range(turn_tokens)]
        return list(self.token_ids)

    def take_answer(self, token_ids: tuple[int, ...]) -> None:
        self.token_ids += token_ids
        self.answers.append(token_ids)


def conversations(*, count: int, num_turns: int, system_tokens: int, vocab_size: int, seed: int) -> list[Conversation]:
    """All begin with the same system prompt; what follows is each one's own."""
    shared = random.Random(seed)
    system = [shared.randrange(3, vocab_size) for _ in range(system_tokens)]
    return [
        Conversation(number, list(system), random.Random(seed * 1000 + number + 1), num_turns)
        for number in range(count)
    ]
