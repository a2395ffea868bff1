"""The last routing decisions, for whoever asks why a request went where it went."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field

from router.planning.plan import Plan
from router.planning.prefix_miss import PrefixMiss

# About 30 KB each with all candidates of both roles.
MAX_DECISIONS = 512


@dataclass(slots=True, kw_only=True)
class Decision:
    """One request: its plans in their order, and what became of the first. Owned by the log.

    `made_s` is Unix seconds. `known_tokens` are those that the router had seen in earlier prompts.
    """

    request_id: str
    num_prompt_tokens: int
    known_tokens: int = 0
    made_s: float = field(default_factory=time.time)
    plans: list[Plan] = field(default_factory=list)
    num_cached_tokens: int | None = None
    ttft_s: float | None = None
    miss: PrefixMiss | None = None


class DecisionLog:
    """Bounded: the oldest is forgotten. Owned by the event loop."""

    def __init__(self, max_decisions: int = MAX_DECISIONS) -> None:
        self._decisions: OrderedDict[str, Decision] = OrderedDict()
        self.max_decisions = max_decisions

    def add(self, decision: Decision) -> None:
        """A later request of the same id takes the place of the earlier one."""
        self._decisions.pop(decision.request_id, None)
        self._decisions[decision.request_id] = decision
        while len(self._decisions) > self.max_decisions:
            self._decisions.popitem(last=False)

    def find(self, request_id: str) -> Decision | None:
        return self._decisions.get(request_id)

    def last(self) -> Decision | None:
        return next(reversed(self._decisions.values()), None)
