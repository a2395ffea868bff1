"""Policies by name."""

from __future__ import annotations

from common.errors import ConfigError
from router.policy.consistent_hash import ConsistentHash
from router.policy.interface import Policy
from router.policy.least_loaded import LeastLoaded
from router.policy.power_of_two import PowerOfTwo
from router.policy.prefix_aware import PrefixAware
from router.policy.round_robin import RoundRobin

_POLICIES: dict[str, type[Policy]] = {
    "prefix_aware": PrefixAware,
    "round_robin": RoundRobin,
    "least_loaded": LeastLoaded,
    "power_of_two": PowerOfTwo,
    "consistent_hash": ConsistentHash,
}
POLICY_NAMES = tuple(_POLICIES)


def select_policy(name: str) -> Policy:
    """Raises ConfigError with the names there are."""
    if name not in _POLICIES:
        raise ConfigError("policy", f"must be one of {', '.join(POLICY_NAMES)}, is {name!r}")
    return _POLICIES[name]()
