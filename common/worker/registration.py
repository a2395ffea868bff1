"""How a worker introduces itself."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass

from common.config import Role, TransferConfig
from common.kv.block_key import golden_key
from common.kv.spec import KVCacheSpec
from common.net.protocol import PROTOCOL_VERSION, encode_role
from common.transport.offer import rank_endpoint
from protos import layout_pb2, worker_pb2, worker_pb2_grpc

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """Who a worker process is, for as long as it lives. `incarnation` is random, new at each start."""

    worker_id: str
    incarnation: int
    role: Role
    address: str  # host:port


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What the fleet must know of the model that a worker has loaded. Lengths are tokens."""

    name: str
    fingerprint: bytes
    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    spec: KVCacheSpec
    key_root: bytes
    backend: str
    max_num_batched_tokens: int


def build_registration(
    identity: WorkerIdentity,
    model: ModelFacts,
    *,
    transfer: TransferConfig,
    index_stride: int,
    version: str,
    lease_s: float,
    draining: bool,
) -> worker_pb2.WorkerRegistration:
    state = layout_pb2.WORKER_STATE_DRAINING if draining else layout_pb2.WORKER_STATE_READY
    return worker_pb2.WorkerRegistration(
        worker_id=identity.worker_id,
        incarnation=identity.incarnation,
        role=encode_role(identity.role),
        state=state,
        protocol_version=PROTOCOL_VERSION,
        model=model.name,
        model_fingerprint=model.fingerprint,
        max_model_len=model.max_model_len,
        vocab_size=model.vocab_size,
        eos_token_ids=model.eos_token_ids,
        layout=encode_spec(model.spec),
        layout_fingerprint=model.spec.fingerprint(),
        golden_key=golden_key(),
        ranks=[rank_endpoint(identity.address, transfer)],
        domains={"host": socket.gethostname()},
        index_stride=index_stride,
        software_version=version,
        backend=model.backend,
        key_root=model.key_root,
        max_num_batched_tokens=model.max_num_batched_tokens,
        lease_ms=round(lease_s * 1000),
    )


def encode_spec(spec: KVCacheSpec) -> layout_pb2.KVCacheSpec:
    return layout_pb2.KVCacheSpec(
        groups=[
            layout_pb2.KVCacheGroup(
                group_id=group.group_id,
                kind=layout_pb2.KVCacheKind.Name(int(group.kind)),
                layers=group.layers,
                num_components=group.num_components,
                num_kv_heads=group.num_kv_heads,
                head_dim=group.head_dim,
                block_size=group.block_size,
                dtype=group.dtype,
                bytes_per_block=group.bytes_per_block,
            )
            for group in spec.groups
        ]
    )


class RegistrationServicer(worker_pb2_grpc.RegistrationServicer):
    """Answers who this worker is, as `current` says it at the moment, and logs what routers have against it."""

    def __init__(self, current: worker_pb2.WorkerRegistration) -> None:
        self.current = current
        self._last_reason = ""

    async def Describe(self, request: worker_pb2.DescribeRequest, context: object) -> worker_pb2.WorkerRegistration:
        return self.current

    async def Refuse(self, request: worker_pb2.RefuseRequest, context: object) -> worker_pb2.RefuseResponse:
        # Several routers of one mind are one line.
        if request.reason != self._last_reason:
            self._last_reason = request.reason
            logger.error("router %s gives this worker no work: %s", request.router_id, request.reason)
        return worker_pb2.RefuseResponse()
