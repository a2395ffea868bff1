"""The PrefillWorker service."""

from __future__ import annotations

from typing import Any

import grpc

from common.worker.attach_session import AttachSession
from protos import worker_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


class PrefillWorkerServicer(worker_pb2_grpc.PrefillWorkerServicer):
    def __init__(self, session: AttachSession) -> None:
        self._session = session

    async def Attach(self, request_iterator: object, context: Context) -> None:
        await self._session.run(context)
