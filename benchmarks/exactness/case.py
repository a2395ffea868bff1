"""The vocabulary of a case: in what state the caches are, how many requests come at once, what path they must take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from common.config import Role


class Cached(Enum):
    """How much of each prompt a side holds before the case's requests come."""

    NOTHING = auto()
    PART = auto()
    ALL = auto()  # all full blocks
    UNKNOWN = auto()  # prompts share prefixes and run at once


class Sampling(Enum):
    GREEDY = auto()
    SEEDED = auto()
    PENALISED = auto()  # seeded, with penalties and logprobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of the report.

    `resets` are the sides that forget their caches first. A salted case gives every prompt a salt of its own, so
    that prompts share nothing and the state of the caches is known exactly; cases of one fleet share those salts.
    """

    name: str
    num_at_once: int = 8
    resets: tuple[Role, ...] = ()
    prefill_cached: Cached = Cached.NOTHING  # in role both: the one worker
    decode_cached: Cached = Cached.NOTHING
    salted: bool = True
    as_source: bool = False
    preempts: bool = False  # answers prove longer than those before, so that blocks run out
    sampling: Sampling = Sampling.GREEDY
    num_choices: int = 1
    num_prompts: int | None = None  # None: all


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """Flags of one cluster, and the cases that run on it in order."""

    name: str = ""
    both: bool = False
    block_size: int = 16
    max_num_batched_tokens: int = 2048
    short_of_blocks: bool = False
    swaps: bool = False  # who must give way waits on the host; else it is handed back, or computed again
    num_new_tokens: int | None = None  # None: the workload's
    cases: tuple[Case, ...] = ()


def part_cached(num_prompt_tokens: int) -> tuple[int, int]:
    """Tokens of a prompt that the prefill and the decode side are given beforehand in a PART case."""
    return num_prompt_tokens * 3 // 4, num_prompt_tokens // 3
