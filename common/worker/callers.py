"""Who may call a worker when the fleet has certificates."""

from __future__ import annotations

from common.net.guard import RoleGuard
from common.net.peer_role import PeerRole

_ROUTER = frozenset({PeerRole.ROUTER})
_WORKER = frozenset({PeerRole.WORKER})
_KEEPERS = frozenset({PeerRole.ROUTER, PeerRole.OPERATOR})


def worker_guard() -> RoleGuard:
    """Routers send work, workers send KV; who only asks for answers has no business here."""
    return RoleGuard(
        {
            "slipstream.v1.PrefillWorker": _ROUTER,
            "slipstream.v1.DecodeWorker": _ROUTER,
            "slipstream.v1.KvTransfer": _WORKER,
            "slipstream.v1.Registration": _KEEPERS,
            "slipstream.v1.Admin": _KEEPERS,
        }
    )
