"""Policies that the product doesn't have, to compare it with: what others do, and what one would do without thought.

One file each. `find_policy` knows these and the router's own.
"""

from slipstream.simulator.policies.registry import COMPARED_POLICY_NAMES, find_policy

__all__ = ["COMPARED_POLICY_NAMES", "find_policy"]
