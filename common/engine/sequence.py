"""One sequence that the scheduler moves: some choices of a leg while they are one, a single choice after that."""

from __future__ import annotations

from enum import Enum, auto

import numpy as np

from common.engine.penalty_counts import PenaltyCounts
from common.kv.block_table import BlockTable
from common.kv.manager import TokenArray
from common.request import Leg, SamplingParams, TokenLogprob


class SequenceState(Enum):
    WAITING = auto()
    RUNNING = auto()
    SWAPPED = auto()  # its KV waits on the host
    ENDED = auto()


class Sequence:
    """Owner: the engine; the scheduler moves the counters, the runner only reads.

    The one idea: `num_computed_tokens` wants to reach `num_tokens`. `num_tokens` counts a token that a step in
    flight is sampling, whose value is not known yet: the values of the first `num_known_tokens` are.
    """

    __slots__ = (
        "_token_ids",
        "arrival",
        "cached_tokens",
        "choice_indices",
        "expected_cached_tokens",
        "first_step_s",
        "hand_over",
        "lease_released",
        "leg",
        "num_computed_tokens",
        "num_known_tokens",
        "num_prompt_tokens",
        "num_reported_blocks",
        "num_tokens",
        "penalties",
        "prompt_logprobs",
        "start_told",
        "state",
        "submit_s",
        "table",
    )

    def __init__(
        self,
        *,
        leg: Leg,
        choice_indices: tuple[int, ...],
        token_ids: TokenArray,
        table: BlockTable,
        arrival: int,
        submit_s: float,
        hand_over: bool = False,
        start_told: bool = False,
    ) -> None:
        self.leg = leg
        self.choice_indices = choice_indices
        self.table = table
        self.arrival = arrival
        self.submit_s = submit_s
        self.hand_over = hand_over
        self.start_told = start_told
        self.lease_released = False
        self.state = SequenceState.WAITING
        self.num_prompt_tokens = len(leg.prompt_token_ids)
        self.num_known_tokens = self.num_tokens = len(token_ids)
        self._token_ids = token_ids
        self.num_computed_tokens = 0
        self.num_reported_blocks = 0
        self.cached_tokens: int | None = None
        self.expected_cached_tokens = leg.expected_cached_tokens  # for the load report alone
        self.first_step_s: float | None = None
        self.prompt_logprobs: list[TokenLogprob] = []
        self.penalties = self._count_penalties()

    @property
    def sampling(self) -> SamplingParams:
        return self.leg.sampling

    @property
    def token_ids(self) -> TokenArray:
        """[num_known_tokens] uint32, prompt and outputs; a view that is valid until a token is added."""
        return self._token_ids[: self.num_known_tokens]

    @property
    def num_output_tokens(self) -> int:
        """Outputs whose values are known."""
        return self.num_known_tokens - self.num_prompt_tokens

    @property
    def num_remaining_tokens(self) -> int:
        return self.num_tokens - self.num_computed_tokens

    @property
    def is_single(self) -> bool:
        """Whether its next token just continues it, instead of forking it or handing it over."""
        return len(self.choice_indices) == 1 and not self.hand_over

    @property
    def is_movable(self) -> bool:
        """Whether it decodes: the KV of all its tokens but the last is computed, and the last is an output."""
        decodes = self.num_computed_tokens >= self.num_known_tokens - 1 and self.num_output_tokens > 0
        return self.is_single and self.state in (SequenceState.RUNNING, SequenceState.SWAPPED) and decodes

    @property
    def wants_prompt_logprobs(self) -> bool:
        return self.leg.sampling.prompt_logprobs is not None and not self.start_told

    @property
    def order(self) -> tuple[int, int]:
        """Urgency: the smaller the sooner. The greatest is the first victim."""
        return (self.leg.priority, self.arrival)

    def add_token(self, token_id: int) -> None:
        """The value of the next token is known."""
        if self.num_known_tokens == len(self._token_ids):
            grown = np.zeros(max(64, 2 * self.num_known_tokens), dtype=self._token_ids.dtype)
            grown[: self.num_known_tokens] = self._token_ids
            self._token_ids = grown
        self._token_ids[self.num_known_tokens] = token_id
        self.num_known_tokens += 1
        self.num_tokens = max(self.num_tokens, self.num_known_tokens)
        if self.penalties is not None:
            self.penalties.add(token_id)

    def rewind(self) -> None:
        """Nothing counts of a token that a step in flight is sampling: it will be drawn again, the same."""
        self.num_tokens = self.num_known_tokens
        self.num_computed_tokens = min(self.num_computed_tokens, self.num_known_tokens - 1)

    def reset(self) -> None:
        """Its blocks are gone: everything is to be computed again."""
        self.rewind()
        self.num_computed_tokens = 0
        self.prompt_logprobs.clear()

    def _count_penalties(self) -> PenaltyCounts | None:
        sampling = self.leg.sampling
        if sampling.repetition_penalty == 1.0 and not sampling.presence_penalty and not sampling.frequency_penalty:
            return None
        return PenaltyCounts(self.token_ids[: self.num_prompt_tokens], self.token_ids[self.num_prompt_tokens :])
