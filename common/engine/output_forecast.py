"""How many tokens a request is likely to generate: what a decode worker grants a credit for."""

from __future__ import annotations

from collections import deque

from common.request import SamplingParams

HISTORY = 256
MIN_HISTORY = 16
INITIAL_TOKENS = 32
PERCENTILE = 0.7


class OutputForecast:
    """A learned percentile of past lengths, not max_tokens, which callers set far too high.

    `fixed_tokens` replaces what is learned. One thread.
    """

    def __init__(self, fixed_tokens: int | None = None) -> None:
        self._fixed_tokens = fixed_tokens
        self._lengths: deque[int] = deque(maxlen=HISTORY)
        self._percentile = INITIAL_TOKENS
        self._stale = False

    def observe(self, num_output_tokens: int) -> None:
        """A choice ended with this many output tokens."""
        self._lengths.append(num_output_tokens)
        self._stale = True

    def remaining_tokens(self, sampling: SamplingParams, num_output_tokens: int) -> int:
        """Tokens that a choice with so many outputs is likely to add, at least 1."""
        expected = max(1, self._expected_tokens() - num_output_tokens)
        if sampling.max_tokens is not None:
            expected = min(expected, max(1, sampling.max_tokens - num_output_tokens))
        return expected

    def _expected_tokens(self) -> int:
        if self._fixed_tokens is not None:
            return self._fixed_tokens
        if self._stale and len(self._lengths) >= MIN_HISTORY:
            self._percentile = sorted(self._lengths)[int(PERCENTILE * (len(self._lengths) - 1))]
            self._stale = False
        return self._percentile
