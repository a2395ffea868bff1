"""What is asked of an engine, and when its tokens came. Imported in peers' environments too: standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A prompt as text and as the token ids of that text; servers get the text, engines the ids."""

    text: str
    token_ids: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Seconds since the batch began: when the request was sent, and when each of its tokens came."""

    sent_s: float
    times_s: tuple[float, ...]

    @property
    def ttft_s(self) -> float:
        return self.times_s[0] - self.sent_s

    @property
    def tpot_s(self) -> float:
        """Mean time per token after the first; 0 when there is none."""
        num_gaps = len(self.times_s) - 1
        return (self.times_s[-1] - self.times_s[0]) / num_gaps if num_gaps else 0.0

    @property
    def gaps_s(self) -> tuple[float, ...]:
        """Times between tokens."""
        return tuple(after - before for before, after in zip(self.times_s, self.times_s[1:], strict=False))
