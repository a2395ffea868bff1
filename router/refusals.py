"""Workers that this router found but does not use, and why. The worker itself is told: its operator reads its log."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from common.net.server import open_channel
from common.net.tls import TlsIdentity
from protos import worker_pb2, worker_pb2_grpc
from router.background import Background

logger = logging.getLogger(__name__)

TELL_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedWorker:
    """`address` is None where the registration could not be read."""

    worker_id: str
    incarnation: int
    address: str | None
    reason: str


class Refusals:
    """At most one for each worker. Owned by the event loop."""

    def __init__(self, router_id: str, tls: TlsIdentity | None = None) -> None:
        self._tls = tls
        self._router_id = router_id
        self._refused: dict[str, RefusedWorker] = {}
        self._telling = Background()

    def add(self, registration: worker_pb2.WorkerRegistration, reason: str) -> None:
        """Logged, and told to the worker, once for each of its starts and each reason."""
        refused = RefusedWorker(
            worker_id=registration.worker_id,
            incarnation=registration.incarnation,
            address=registration.ranks[0].address if registration.ranks else None,
            reason=reason,
        )
        if self._refused.get(refused.worker_id) == refused:
            return
        self._refused[refused.worker_id] = refused
        logger.error("refused: %s", reason)
        if refused.address is not None:
            self._telling.start(self._tell(refused.address, reason))

    def drop(self, worker_id: str) -> None:
        """The worker fits now, or is gone. Idempotent."""
        self._refused.pop(worker_id, None)

    def all(self) -> list[RefusedWorker]:
        return list(self._refused.values())

    async def close(self) -> None:
        await self._telling.close()

    async def _tell(self, address: str, reason: str) -> None:
        async with open_channel(address, self._tls) as channel:
            request = worker_pb2.RefuseRequest(router_id=self._router_id, reason=reason)
            await worker_pb2_grpc.RegistrationStub(channel).Refuse(request, timeout=TELL_TIMEOUT_S)
