"""What routers and workers must agree on before anything else: the protocol's version, and the names of roles."""

from __future__ import annotations

from common.config import Role
from protos import layout_pb2

# Raised when processes say something to each other that those of the version before don't know. Whoever says such a
# thing looks first at what the other speaks.
PROTOCOL_VERSION = 2
# The oldest version that this one works with: the one before, so that a fleet can be renewed one process at a time.
OLDEST_PROTOCOL_VERSION = 1
# Since then: heartbeats of routers, blocks that are mapped late, choices that are kept and moved.
HEARTBEAT_VERSION = LATE_MAP_VERSION = MOVE_VERSION = 2

_TO_WIRE = {
    Role.PREFILL: layout_pb2.ROLE_PREFILL,
    Role.DECODE: layout_pb2.ROLE_DECODE,
    Role.BOTH: layout_pb2.ROLE_BOTH,
}
_FROM_WIRE = {wire: role for role, wire in _TO_WIRE.items()}


def speaks_with_us(version: int) -> bool:
    """Whether a process of that protocol version can work with this one. A newer one decides that by itself."""
    return version >= OLDEST_PROTOCOL_VERSION


def encode_role(role: Role) -> layout_pb2.Role:
    return _TO_WIRE[role]


def decode_role(role: layout_pb2.Role) -> Role | None:
    """None for a role that this version does not know."""
    return _FROM_WIRE.get(role)
