"""What the router knows of a worker: who it is (its registration) and how busy it is (its load reports)."""

from __future__ import annotations

from dataclasses import dataclass

from common.config import Role
from common.cost import StepTimes
from common.errors import IncompatibleWorkerError
from common.kv.block_key import golden_key
from common.net.cost_codec import decode_step_times
from common.net.protocol import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, decode_role, speaks_with_us
from common.request import WorkerId
from protos import layout_pb2, worker_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker's registration, decoded. Lengths are tokens."""

    worker_id: WorkerId
    incarnation: int
    role: Role
    address: str
    model: str
    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    block_size: int
    num_bytes_per_block: int
    key_root: bytes
    layout_fingerprint: bytes
    index_stride: int
    draining: bool
    backend: str
    chunk_tokens: int = 2048  # prompt tokens per step at most
    protocol_version: int = PROTOCOL_VERSION
    lease_s: float | None = None  # silence after which a peer counts as lost; None: a worker that does not say

    @staticmethod
    def from_wire(message: worker_pb2.WorkerRegistration) -> WorkerInfo:
        """Raises IncompatibleWorkerError when this router can't work with it."""
        if not speaks_with_us(message.protocol_version):
            raise IncompatibleWorkerError(
                f"worker {message.worker_id} speaks protocol {message.protocol_version}, this router "
                f"{PROTOCOL_VERSION}, from {OLDEST_PROTOCOL_VERSION} on"
            )
        if message.golden_key != golden_key():
            raise IncompatibleWorkerError(f"worker {message.worker_id} computes other block keys than this router")
        role = decode_role(message.role)
        if role is None or not message.ranks or not message.layout.groups:
            raise IncompatibleWorkerError(f"worker {message.worker_id} sent an incomplete registration")
        if len(message.ranks) != 1:
            raise IncompatibleWorkerError(
                f"worker {message.worker_id} has {len(message.ranks)} ranks: KV moves between workers of one rank only"
            )
        return WorkerInfo(
            worker_id=WorkerId(message.worker_id),
            incarnation=message.incarnation,
            role=role,
            address=message.ranks[0].address,
            model=message.model,
            max_model_len=message.max_model_len,
            vocab_size=message.vocab_size,
            eos_token_ids=tuple(message.eos_token_ids),
            block_size=message.layout.groups[0].block_size,
            num_bytes_per_block=sum(group.bytes_per_block for group in message.layout.groups),
            key_root=message.key_root,
            layout_fingerprint=message.layout_fingerprint,
            index_stride=message.index_stride,
            draining=message.state == layout_pb2.WORKER_STATE_DRAINING,
            backend=message.backend,
            chunk_tokens=message.max_num_batched_tokens or 2048,
            protocol_version=message.protocol_version,
            lease_s=message.lease_ms / 1000 or None,
        )

    def check_model(self, model: str) -> None:
        """Raises IncompatibleWorkerError when the worker serves another model than `model`."""
        if self.model != model:
            raise IncompatibleWorkerError(
                f"worker {self.worker_id} serves model {self.model!r}, this router {model!r}: start both with one "
                "model, or with one served_model_name if the model is the same"
            )

    def check_compatible(self, other: WorkerInfo) -> None:
        """Raises IncompatibleWorkerError with the field that differs, when KV can't move between the two."""
        for name in ("block_size", "num_bytes_per_block", "layout_fingerprint", "key_root", "index_stride"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                setting = name if name in ("block_size", "index_stride") else "model (the same files) and dtype"
                raise IncompatibleWorkerError(
                    f"worker {self.worker_id} has {name} {_readable(mine)}, but worker {other.worker_id} of the fleet "
                    f"has {_readable(theirs)}: start all workers of a fleet with the same {setting}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLoad:
    """A worker's last load report: what planning needs of it.

    `queue_s` is the prefill work of its queue and batch, `busy_s` all the time that it has spent in steps.
    """

    num_running: int = 0
    num_waiting: int = 0
    num_waiting_tokens: int = 0
    num_reservations: int = 0
    num_blocks: int = 0
    num_free_blocks: int = 0
    num_cached_blocks: int = 0
    max_num_seqs: int = 1
    num_running_tokens: int = 0
    num_prefilled_tokens: int = 0
    queue_s: float = 0.0
    busy_s: float = 0.0
    num_submits_taken: int = 0
    num_routers: int = 1
    num_swapped: int = 0
    step_times: StepTimes | None = None

    @property
    def num_blocks_to_grant(self) -> int:
        """Free blocks that it may promise to newcomers: none while requests wait on its host to come back."""
        return 0 if self.num_swapped else self.num_free_blocks

    @staticmethod
    def from_wire(message: worker_pb2.LoadReport) -> WorkerLoad:
        return WorkerLoad(
            num_running=message.num_running,
            num_waiting=message.num_waiting,
            num_waiting_tokens=message.num_waiting_tokens,
            num_reservations=message.num_reservations,
            num_blocks=message.num_blocks,
            num_free_blocks=message.num_free_blocks,
            num_cached_blocks=message.num_cached_blocks,
            max_num_seqs=max(1, message.max_num_seqs),
            num_running_tokens=message.num_running_tokens,
            num_prefilled_tokens=message.num_prefilled_tokens,
            queue_s=message.queue_s,
            busy_s=message.busy_s,
            num_submits_taken=message.num_submits_taken,
            num_routers=message.num_routers,
            num_swapped=message.num_swapped,
            step_times=decode_step_times(message.step_times) if message.HasField("step_times") else None,
        )


def _readable(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else repr(value)
