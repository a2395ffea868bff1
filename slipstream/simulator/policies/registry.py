"""Policies by name."""

from __future__ import annotations

from collections.abc import Callable

from common.errors import ConfigError
from router.policy import POLICY_NAMES, Policy, select_policy
from slipstream.simulator.policies.dynamo_cost import DynamoCost
from slipstream.simulator.policies.longest_prefix import LongestPrefix
from slipstream.simulator.policies.random_worker import RandomWorker
from slipstream.simulator.policies.sglang_gate import SglangGate

_COMPARED: dict[str, Callable[[int], Policy]] = {
    "random": lambda _: RandomWorker(),
    "longest_prefix": lambda _: LongestPrefix(),
    "sglang_gate": lambda block_size: SglangGate(block_size=block_size),
    "dynamo_cost": lambda _: DynamoCost(),
}
COMPARED_POLICY_NAMES = (*POLICY_NAMES, *_COMPARED)


def find_policy(name: str, block_size: int) -> Policy:
    """Raises ConfigError with the names there are."""
    if name in _COMPARED:
        return _COMPARED[name](block_size)
    if name not in POLICY_NAMES:
        raise ConfigError("policy", f"must be one of {', '.join(COMPARED_POLICY_NAMES)}, is {name!r}")
    return select_policy(name)
