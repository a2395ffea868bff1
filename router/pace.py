"""How fast the queue moves and how long answers take, learned from those before: what waits are foretold by."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from router.planning.moving_mean import MovingMean

# Room comes in bursts, whenever a batch of answers ends: the pace is that of so many turns, over so many seconds.
MIN_TURNS = 16
WINDOW_S = 5.0
ANSWER_WEIGHT = 0.05


class Pace:
    """Owned by the event loop. Times are monotonic seconds; those in which nobody waits don't count.

    `fleet_version` changes with the workers that take work. What was learned of others is forgotten then: a queue that
    stood still while a worker's loss went unnoticed tells nothing of those that are left.
    """

    def __init__(self, fleet_version: Callable[[], int] = lambda: 0) -> None:
        self._fleet_version = fleet_version
        self._known_version = fleet_version()
        self._turns: deque[float] = deque()  # seconds that each took
        self._sum_s = 0.0
        self._since_s = 0.0
        self._first_s, self._token_s, self._num_tokens = (MovingMean(weight=ANSWER_WEIGHT) for _ in range(3))

    def begin(self, now_s: float) -> None:
        """Somebody waits, and nobody did before."""
        self._since_s = now_s

    def note_turn(self, now_s: float) -> None:
        """Who was first has found room."""
        if self._is_other_fleet(now_s):
            return
        self._turns.append(now_s - self._since_s)
        self._sum_s += self._turns[-1]
        self._since_s = now_s
        while len(self._turns) > MIN_TURNS and self._sum_s - self._turns[0] > WINDOW_S:
            self._sum_s -= self._turns.popleft()

    def note_answer(self, first_s: float, token_s: float | None, num_tokens: int) -> None:
        """From the time when a worker took a request to its first token, from token to token, and how many came.

        Not of answers that lost a worker.
        """
        self._first_s.add(first_s)
        self._num_tokens.add(num_tokens)
        if token_s is not None:
            self._token_s.add(token_s)

    def turn_s(self, now_s: float) -> float | None:
        """Seconds from turn to turn; None while too few are known."""
        if self._is_other_fleet(now_s) or len(self._turns) < MIN_TURNS:
            return None
        mean_s = self._sum_s / len(self._turns)
        return max(mean_s, (self._sum_s + now_s - self._since_s) / (len(self._turns) + 1))

    def answer_s(self, *, least_tokens: int, most_tokens: int | None) -> float:
        """From the time when a worker takes a request to the last token that can be expected of it."""
        num_tokens = max(least_tokens, round(self._num_tokens.value))
        if most_tokens is not None:
            num_tokens = min(num_tokens, most_tokens)
        return self._first_s.value + max(0, num_tokens - 1) * self._token_s.value

    def _is_other_fleet(self, now_s: float) -> bool:
        """Whether it has changed since the last call. If so, everything begins anew."""
        version = self._fleet_version()
        if version == self._known_version:
            return False
        self._known_version = version
        self._turns.clear()
        self._sum_s = 0.0
        self._since_s = now_s
        self._first_s, self._token_s, self._num_tokens = (MovingMean(weight=ANSWER_WEIGHT) for _ in range(3))
        return True
