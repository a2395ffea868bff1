"""What a certificate of the fleet's CA allows its holder: one DNS name for each role.

A name, and not the address that somebody answers at, is what processes of a fleet check of each other: pods and
machines come and go, and one certificate serves all workers of a deployment.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

_DOMAIN = ".slipstream.internal"


class PeerRole(StrEnum):
    ROUTER = "router"
    WORKER = "worker"
    CLIENT = "client"  # asks routers for answers
    OPERATOR = "operator"  # that, and everything that the command `slipstream` does
    INDEX = "index"  # the index server, which calls nobody

    @property
    def dns_name(self) -> str:
        """The subject alternative name that says it."""
        return self.value + _DOMAIN


_ROLES = {role.dns_name: role for role in PeerRole}


def roles_of(dns_names: Iterable[str]) -> frozenset[PeerRole]:
    """The roles among a certificate's names."""
    return frozenset(_ROLES[name] for name in dns_names if name in _ROLES)
