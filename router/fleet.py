"""The workers that this router knows: found in the index or named by hand, held by a stream each.

A lost index only keeps newcomers out: a worker leaves when its lease is gone *and* its stream is down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import grpc
from google.protobuf.message import DecodeError

from common.config import Role
from common.errors import IncompatibleWorkerError, UnavailableError
from common.net.handshake import HandshakeLog
from common.net.server import open_channel
from common.net.tls import TlsIdentity
from common.request import WorkerId
from protos import worker_pb2, worker_pb2_grpc
from router.attachment import DESCRIBE_TIMEOUT_S
from router.departed import DepartedWorker, DepartedWorkers
from router.planning.roster import Roster
from router.refusals import Refusals, RefusedWorker
from router.worker_handle import WorkerHandle
from router.worker_info import WorkerInfo

logger = logging.getLogger(__name__)

DESCRIBE_INTERVAL_S = 1.0
SETTLE_INTERVAL_S = 0.5
# For so long after its stream broke, newcomers must fit a worker: it is no time for one that was refused to step in.
RECALL_S = 30.0


class Fleet:
    """Owned by the event loop. `changed` is set whenever a worker's load or state moves.

    Workers whose streams are up serve the router's model, and KV can move between any two of them. Those whose streams
    broke are remembered for `recall_s`.
    """

    def __init__(
        self, router_id: str, model: str, roster: Roster, *, tls: TlsIdentity | None = None, recall_s: float = RECALL_S
    ) -> None:
        self.router_id = router_id
        self._model = model
        self._roster = roster
        self._recall_s = recall_s
        self._handles: dict[WorkerId, WorkerHandle] = {}
        self._static_ids: set[WorkerId] = set()
        self._unanswered: dict[str, None] = {}  # addresses of workers named by hand that never answered
        self._members: Mapping[str, bytes] | None = None
        self._payloads: dict[str, bytes] = {}
        self._tls = tls
        self._refusals = Refusals(router_id, tls)
        self._departed = DepartedWorkers()
        self._tasks: list[asyncio.Task[None]] = []
        self.changed = asyncio.Event()

    def add_static(self, addresses: tuple[str, ...]) -> None:
        """Workers named on the command line: asked who they are until they answer."""
        self._tasks += [asyncio.create_task(self._describe(address)) for address in addresses]

    async def set_members(self, members: Mapping[str, bytes]) -> None:
        """The registrations under a live lease, by worker id."""
        self._members = members
        await self._settle(members)

    async def keep_members(self) -> None:
        """Does what had to wait for a stream to break: drops who left, and takes who came back. Until cancelled."""
        while True:
            await asyncio.sleep(SETTLE_INTERVAL_S)
            if self._members is not None and not all(handle.attachment.connected for handle in self.workers()):
                await self._settle(self._members)

    async def _settle(self, members: Mapping[str, bytes]) -> None:
        for worker_id, payload in members.items():
            if WorkerId(worker_id) in self._handles and self._payloads.get(worker_id) == payload:
                continue  # nothing new of it, and there may be thousands
            try:
                registration = worker_pb2.WorkerRegistration.FromString(payload)
                await self._add(registration)
                if self._handles[WorkerId(worker_id)].info.incarnation == registration.incarnation:
                    self._payloads[worker_id] = payload
            except DecodeError as error:
                unread = worker_pb2.WorkerRegistration(worker_id=worker_id)
                self._refusals.add(unread, f"worker {worker_id} has a registration that can't be read: {error}")
            except IncompatibleWorkerError:
                pass  # told and kept by `_admit`
        for refused in self._refusals.all():
            if refused.worker_id not in members and refused.worker_id not in self._static_ids:
                self._refusals.drop(refused.worker_id)
        for worker_id in [*self._handles]:
            gone = worker_id not in members and worker_id not in self._static_ids
            if gone and not self._handles[worker_id].attachment.connected:
                logger.info("worker %s is no member any more", worker_id)
                self._payloads.pop(worker_id, None)
                await self._remove(worker_id)
                self.changed.set()

    def workers(self) -> list[WorkerHandle]:
        return list(self._handles.values())

    def lost_within(self, seconds: float) -> bool:
        """Whether a worker's stream broke so lately, and unannounced, that it may come back as it was."""
        return any(
            not handle.attachment.connected and handle.attachment.connected_within(seconds)
            for handle in self._handles.values()
        )

    def load_reports(self) -> dict[str, worker_pb2.LoadReport]:
        """The last of each worker, by its id. In any thread."""
        return {str(handle.info.worker_id): handle.load_report for handle in self.workers()}

    def usable(self, role: Role, exclude: frozenset[str] = frozenset()) -> list[WorkerHandle]:
        """Workers that can take a leg of this role now."""
        return [
            handle
            for handle in self._handles.values()
            if handle.usable and handle.can(role) and handle.info.worker_id not in exclude
        ]

    def refused(self) -> list[RefusedWorker]:
        """Workers that were found but don't fit, with another model, say, or that were named and never answered."""
        silent = [
            RefusedWorker(
                worker_id="", incarnation=0, address=address, reason=f"the worker at {address} gives no answer"
            )
            for address in self._unanswered
        ]
        return self._refusals.all() + silent

    def departed(self) -> list[DepartedWorker]:
        """Workers that were members not long ago."""
        return self._departed.all()

    def find(self, worker_id: str) -> WorkerHandle | None:
        return self._handles.get(WorkerId(worker_id))

    def reference(self) -> WorkerInfo:
        """A worker's registration, for what all workers share. Raises UnavailableError when there is none yet."""
        info = self.try_reference()
        if info is None and self._unanswered:
            addresses = ", ".join(self._unanswered)
            raise UnavailableError(f"the workers that this router was given do not answer: {addresses}")
        if info is None:
            raise UnavailableError(
                f"no worker has registered yet for model {self._model!r}: start one, or wait until it has loaded"
            )
        return info

    def try_reference(self) -> WorkerInfo | None:
        """See `reference`; None when no worker has registered."""
        # Only those that are connected are known to be alike.
        known = sorted(self._handles.values(), key=lambda handle: not handle.attachment.connected)
        return known[0].info if known else None

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(handle.close() for handle in self._handles.values()))
        self._handles.clear()
        await self._refusals.close()

    async def _describe(self, address: str) -> None:
        async with open_channel(address, self._tls) as channel:
            stub = worker_pb2_grpc.RegistrationStub(channel)
            handshakes = HandshakeLog(logger, f"worker at {address}", silence=True)
            worker_id: WorkerId | None = None
            self._unanswered[address] = None
            while True:
                handle = None if worker_id is None else self._handles.get(worker_id)
                if handle is None or not handle.attachment.connected:
                    try:
                        registration = await stub.Describe(worker_pb2.DescribeRequest(), timeout=DESCRIBE_TIMEOUT_S)
                        if worker_id is not None and worker_id != registration.worker_id:
                            await self._forget_static(worker_id)
                        self._unanswered.pop(address, None)
                        worker_id = WorkerId(registration.worker_id)
                        self._static_ids.add(worker_id)
                        await self._add(registration)
                    except grpc.aio.AioRpcError as error:
                        handshakes.failed(error)
                        if worker_id is not None:
                            self._refusals.drop(worker_id)
                    except IncompatibleWorkerError:
                        pass  # told and kept by `_admit`
                await asyncio.sleep(DESCRIBE_INTERVAL_S)

    async def _forget_static(self, worker_id: WorkerId) -> None:
        """Another worker has taken its address."""
        self._static_ids.discard(worker_id)
        self._refusals.drop(worker_id)
        handle = self._handles.get(worker_id)
        if handle is not None and not handle.attachment.connected:
            await self._remove(worker_id)

    async def _remove(self, worker_id: WorkerId) -> None:
        handle = self._handles.pop(worker_id)
        self._departed.add(handle.info, removed=handle.attachment.left)
        await handle.close()

    async def _add(self, registration: worker_pb2.WorkerRegistration) -> None:
        info = self._admit(registration)
        known = self._handles.get(info.worker_id)
        if known is not None and known.info.incarnation == info.incarnation:
            known.info = info
            self._refusals.drop(info.worker_id)
            return
        if known is not None and known.attachment.connected:
            # Its stream speaks for the incarnation that runs. One that drains is about to make room.
            if not known.info.draining:
                self._refusals.add(
                    registration, f"worker {info.worker_id} runs already, at {known.info.address}: each needs an id"
                )
            return
        self._departed.forget(info.worker_id)
        self._refusals.drop(info.worker_id)
        self._handles[info.worker_id] = WorkerHandle(
            info, self.router_id, self._roster, self.changed, self._welcome, self._tls
        )
        logger.info("worker %s (%s, %s) at %s", info.worker_id, info.role.value, info.model, info.address)
        self.changed.set()
        if known is not None:
            await known.close()

    def _welcome(self, registration: worker_pb2.WorkerRegistration) -> WorkerInfo:
        """Of a worker whose stream is up. Raises as `_admit` does."""
        info = self._admit(registration)
        self._refusals.drop(info.worker_id)
        return info

    def _admit(self, registration: worker_pb2.WorkerRegistration) -> WorkerInfo:
        """Raises IncompatibleWorkerError, which is told to the worker, for one that does not fit those that are up."""
        try:
            info = WorkerInfo.from_wire(registration)
            info.check_model(self._model)
            # Those that were admitted are alike: one of them speaks for all.
            others = (handle for handle in self._handles.values() if handle.info.worker_id != info.worker_id)
            other = next((one for one in others if one.attachment.connected_within(self._recall_s)), None)
            if other is not None:
                info.check_compatible(other.info)
        except IncompatibleWorkerError as error:
            self._refusals.add(registration, str(error))
            raise
        return info
