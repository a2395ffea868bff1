"""Routing policies: pure functions of a snapshot. One file each; `select_policy` names them."""

from router.policy.interface import Candidate, Policy, Ranked, RequestShape, Snapshot
from router.policy.registry import POLICY_NAMES, select_policy

__all__ = ["POLICY_NAMES", "Candidate", "Policy", "Ranked", "RequestShape", "Snapshot", "select_policy"]
