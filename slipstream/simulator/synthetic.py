"""Workloads made from a few parameters and a seed: `synthetic:NAME?requests=12000&rate=50&seed=1`."""

from __future__ import annotations

import dataclasses
import heapq
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from common.errors import ConfigError
from slipstream.simulator.trace import TraceRequest, num_blocks_of

PREFIX = "synthetic:"
# Of lengths: their logarithm's standard deviation.
SPREAD = 0.5
# What more would be is a slip of the pen, and fill the memory before it shows.
MOST = {
    "prefixes": 1_000_000,
    "prefix_tokens": 10_000_000,
    "skew": 30,
    "turns": 100_000,
    "turn_tokens": 10_000_000,
    "output_tokens": 10_000_000,
    "max_tokens": 10_000_000,
}
MAX_PREFIX_BLOCKS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Conversations of `turns` requests on average, whose prompts begin with one of `prefixes` shared texts.

    Each turn adds `turn_tokens` to what was said before, and gets `output_tokens`; the next one comes `think_s` after
    it. A prefix is drawn by Zipf's law with exponent `skew`: 0 is evenly. Lengths are means of log-normal draws, `rate`
    is requests per second, arrivals of conversations are a Poisson process.
    """

    requests: int = 1000
    rate: float = 10.0
    seed: int = 0
    block_size: int = 64
    prefixes: int = 1
    prefix_tokens: int = 512
    skew: float = 0.0
    turns: float = 1.0
    turn_tokens: int = 400
    output_tokens: int = 250
    think_s: float = 10.0
    max_tokens: int = 120_000

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            least = 0 if one.name in ("seed", "skew", "prefix_tokens", "think_s") else 1
            if one.name == "rate":
                if not 0 < value < math.inf:
                    raise ConfigError("rate", f"must be above 0, is {value:g}")
            elif not least <= value <= MOST.get(one.name, math.inf) or value == math.inf:
                limit = f" and at most {MOST[one.name]:,}" if one.name in MOST else ""
                raise ConfigError(one.name, f"must be at least {least}{limit}, is {value:g}")
        num_prefix_blocks = self.prefixes * (self.prefix_tokens // self.block_size)
        if num_prefix_blocks > MAX_PREFIX_BLOCKS:
            raise ConfigError(
                "prefixes",
                f"all together have {num_prefix_blocks:,} blocks, at most {MAX_PREFIX_BLOCKS:,} are possible",
            )


WORKLOADS: Mapping[str, Workload] = {
    # Many groups, each with a text of its own: documents that are asked about, few-shot examples.
    "groups": Workload(prefixes=64, prefix_tokens=2048, skew=1.0),
    # Few products, each with a long system prompt.
    "system_prompts": Workload(prefixes=4, prefix_tokens=8192, skew=0.5, turn_tokens=500),
    # People who chat.
    "multi_turn": Workload(prefixes=8, prefix_tokens=512, skew=1.0, turns=5.0),
    # Programs that call tools: many short steps over a growing context.
    "agents": Workload(
        prefixes=8, prefix_tokens=4096, skew=0.5, turns=12.0, turn_tokens=1200, output_tokens=120, think_s=2.0
    ),
}


def parse_workload(text: str) -> Workload:
    """After the prefix: a name, and parameters as in a URL. Raises ConfigError that names the field."""
    name, _, query = text.partition("?")
    if name not in WORKLOADS:
        raise ConfigError("trace", f"no workload {name!r}; there are {', '.join(WORKLOADS)}")
    known: dict[str, Any] = {one.name: one.type for one in dataclasses.fields(Workload)}
    changes: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in known:
            raise ConfigError(key, f"is no parameter of a workload; known: {', '.join(known)}")
        whole = known[key] == "int"
        try:
            changes[key] = int(value) if whole else float(value)
        except ValueError:
            raise ConfigError(key, f"must be a {'whole ' if whole else ''}number, is {value!r}") from None
    return dataclasses.replace(WORKLOADS[name], **changes)


@dataclass(slots=True)
class _Conversation:
    """`ids` are of full blocks; what stands in the last, partial one is another block after each turn."""

    ids: list[int]
    num_tokens: int
    num_turns: int


@dataclass(frozen=True, slots=True)
class SyntheticTrace:
    """Holds only the conversations that are under way."""

    workload: Workload

    @property
    def block_size(self) -> int:
        return self.workload.block_size

    def __iter__(self) -> Iterator[TraceRequest]:
        return _Conversations(self.workload).requests()


class _Conversations:
    """One reading of the trace."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._draw = random.Random(workload.seed)
        self._next_id = 0
        self._prefixes = [
            self._new_ids(workload.prefix_tokens // workload.block_size) for _ in range(workload.prefixes)
        ]
        weights = [1 / (rank + 1) ** workload.skew for rank in range(workload.prefixes)]
        self._cumulative = [sum(weights[: index + 1]) for index in range(len(weights))]
        self._turns: list[tuple[float, int, _Conversation]] = []
        self._number = 0

    def requests(self) -> Iterator[TraceRequest]:
        """In the order of their arrival."""
        workload = self._workload
        begin_rate = workload.rate / workload.turns
        next_begin_s = self._draw.expovariate(begin_rate)
        for _ in range(workload.requests):
            if self._turns and self._turns[0][0] <= next_begin_s:
                arrival_s, _, conversation = heapq.heappop(self._turns)
            else:
                arrival_s, conversation = next_begin_s, self._begin()
                next_begin_s += self._draw.expovariate(begin_rate)
            yield self._take_turn(arrival_s, conversation)

    def _begin(self) -> _Conversation:
        workload = self._workload
        (prefix,) = self._draw.choices(self._prefixes, cum_weights=self._cumulative)
        # Geometric, at least one.
        num_turns = 1
        if workload.turns > 1:
            num_turns += int(math.log(1 - self._draw.random()) / math.log(1 - 1 / workload.turns))
        return _Conversation(list(prefix), workload.prefix_tokens, num_turns)

    def _take_turn(self, arrival_s: float, conversation: _Conversation) -> TraceRequest:
        workload = self._workload
        num_tokens = conversation.num_tokens + self._length(workload.turn_tokens)
        num_new_tokens = self._length(workload.output_tokens)
        self._grow(conversation, num_tokens)
        last = self._new_ids(num_blocks_of(num_tokens, workload.block_size) - len(conversation.ids))
        request = TraceRequest(arrival_s, num_tokens, num_new_tokens, (*conversation.ids, *last))
        conversation.num_turns -= 1
        if conversation.num_turns > 0 and num_tokens + num_new_tokens < workload.max_tokens:
            self._grow(conversation, num_tokens + num_new_tokens)
            self._number += 1
            next_s = arrival_s + workload.think_s * self._draw.expovariate(1.0)
            heapq.heappush(self._turns, (next_s, self._number, conversation))
        return request

    def _grow(self, conversation: _Conversation, num_tokens: int) -> None:
        conversation.ids += self._new_ids(num_tokens // self._workload.block_size - len(conversation.ids))
        conversation.num_tokens = num_tokens

    def _length(self, mean: float) -> int:
        return max(1, round(self._draw.lognormvariate(math.log(mean) - SPREAD**2 / 2, SPREAD)))

    def _new_ids(self, count: int) -> list[int]:
        first = self._next_id
        self._next_id += max(0, count)
        return list(range(first, self._next_id))
