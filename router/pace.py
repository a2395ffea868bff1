"""How fast the queue moves and how long answers take, learned from those before: what waits are foretold by."""

from __future__ import annotations

from collections import deque

from router.planning.moving_mean import MovingMean

# Room comes in bursts, whenever a batch of answers ends: the pace is that of so many turns, over so many seconds.
MIN_TURNS = 16
WINDOW_S = 5.0


class Pace:
    """Owned by the event loop. Times are monotonic seconds; those in which nobody waits don't count."""

    def __init__(self) -> None:
        self._turns: deque[float] = deque()  # seconds that each took
        self._sum_s = 0.0
        self._since_s = 0.0
        self._first_s = MovingMean(weight=0.05)
        self._token_s = MovingMean(weight=0.05)
        self._num_tokens = MovingMean(weight=0.05)

    def begin(self, now_s: float) -> None:
        """Somebody waits, and nobody did before."""
        self._since_s = now_s

    def note_turn(self, now_s: float) -> None:
        """Who was first has found room."""
        self._turns.append(now_s - self._since_s)
        self._sum_s += self._turns[-1]
        self._since_s = now_s
        while len(self._turns) > MIN_TURNS and self._sum_s - self._turns[0] > WINDOW_S:
            self._sum_s -= self._turns.popleft()

    def note_answer(self, first_s: float, token_s: float | None, num_tokens: int) -> None:
        """From the time when a worker took a request to its first token, from token to token, and how many came."""
        self._first_s.add(first_s)
        self._num_tokens.add(num_tokens)
        if token_s is not None:
            self._token_s.add(token_s)

    def turn_s(self, now_s: float) -> float | None:
        """Seconds from turn to turn; None while too few are known."""
        if len(self._turns) < MIN_TURNS:
            return None
        mean_s = self._sum_s / len(self._turns)
        return max(mean_s, (self._sum_s + now_s - self._since_s) / (len(self._turns) + 1))

    def answer_s(self, *, least_tokens: int, most_tokens: int | None) -> float:
        """From the time when a worker takes a request to the last token that can be expected of it."""
        num_tokens = max(least_tokens, round(self._num_tokens.value))
        if most_tokens is not None:
            num_tokens = min(num_tokens, most_tokens)
        return self._first_s.value + max(0, num_tokens - 1) * self._token_s.value
