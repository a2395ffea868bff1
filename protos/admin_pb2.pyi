from protos import layout_pb2 as _layout_pb2
from protos import worker_pb2 as _worker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RequestStage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REQUEST_STAGE_UNSPECIFIED: _ClassVar[RequestStage]
    REQUEST_STAGE_QUEUED: _ClassVar[RequestStage]
    REQUEST_STAGE_RESERVING: _ClassVar[RequestStage]
    REQUEST_STAGE_PREFILLING: _ClassVar[RequestStage]
    REQUEST_STAGE_HANDING_OVER: _ClassVar[RequestStage]
    REQUEST_STAGE_DECODING: _ClassVar[RequestStage]

class TicketState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TICKET_STATE_UNSPECIFIED: _ClassVar[TicketState]
    TICKET_STATE_OFFERED: _ClassVar[TicketState]
    TICKET_STATE_CREDITED: _ClassVar[TicketState]
    TICKET_STATE_MAPPED: _ClassVar[TicketState]
    TICKET_STATE_SENDING: _ClassVar[TicketState]
    TICKET_STATE_COMMITTED: _ClassVar[TicketState]
    TICKET_STATE_RELEASED: _ClassVar[TicketState]
    TICKET_STATE_FAILED: _ClassVar[TicketState]
    TICKET_STATE_EXPIRED: _ClassVar[TicketState]
REQUEST_STAGE_UNSPECIFIED: RequestStage
REQUEST_STAGE_QUEUED: RequestStage
REQUEST_STAGE_RESERVING: RequestStage
REQUEST_STAGE_PREFILLING: RequestStage
REQUEST_STAGE_HANDING_OVER: RequestStage
REQUEST_STAGE_DECODING: RequestStage
TICKET_STATE_UNSPECIFIED: TicketState
TICKET_STATE_OFFERED: TicketState
TICKET_STATE_CREDITED: TicketState
TICKET_STATE_MAPPED: TicketState
TICKET_STATE_SENDING: TicketState
TICKET_STATE_COMMITTED: TicketState
TICKET_STATE_RELEASED: TicketState
TICKET_STATE_FAILED: TicketState
TICKET_STATE_EXPIRED: TicketState

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("workers", "router", "refused_workers")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    ROUTER_FIELD_NUMBER: _ClassVar[int]
    REFUSED_WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    router: RouterStatus
    refused_workers: _containers.RepeatedCompositeFieldContainer[RefusedWorker]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ..., router: _Optional[_Union[RouterStatus, _Mapping]] = ..., refused_workers: _Optional[_Iterable[_Union[RefusedWorker, _Mapping]]] = ...) -> None: ...

class RefusedWorker(_message.Message):
    __slots__ = ("worker_id", "address", "reason")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    address: str
    reason: str
    def __init__(self, worker_id: _Optional[str] = ..., address: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class WorkerStatus(_message.Message):
    __slots__ = ("worker_id", "incarnation", "role", "state", "model", "address", "reachable", "load", "backend", "uptime_s")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: int
    role: _layout_pb2.Role
    state: _layout_pb2.WorkerState
    model: str
    address: str
    reachable: bool
    load: _worker_pb2.LoadReport
    backend: str
    uptime_s: float
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., role: _Optional[_Union[_layout_pb2.Role, str]] = ..., state: _Optional[_Union[_layout_pb2.WorkerState, str]] = ..., model: _Optional[str] = ..., address: _Optional[str] = ..., reachable: _Optional[bool] = ..., load: _Optional[_Union[_worker_pb2.LoadReport, _Mapping]] = ..., backend: _Optional[str] = ..., uptime_s: _Optional[float] = ...) -> None: ...

class RouterStatus(_message.Message):
    __slots__ = ("router_id", "ready", "index_degraded", "num_active_requests", "uptime_s", "version")
    ROUTER_ID_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    INDEX_DEGRADED_FIELD_NUMBER: _ClassVar[int]
    NUM_ACTIVE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    router_id: str
    ready: bool
    index_degraded: bool
    num_active_requests: int
    uptime_s: float
    version: str
    def __init__(self, router_id: _Optional[str] = ..., ready: _Optional[bool] = ..., index_degraded: _Optional[bool] = ..., num_active_requests: _Optional[int] = ..., uptime_s: _Optional[float] = ..., version: _Optional[str] = ...) -> None: ...

class ResetPrefixCacheRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResetPrefixCacheResponse(_message.Message):
    __slots__ = ("num_dropped_blocks",)
    NUM_DROPPED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    num_dropped_blocks: int
    def __init__(self, num_dropped_blocks: _Optional[int] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("worker_id", "undo")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    UNDO_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    undo: bool
    def __init__(self, worker_id: _Optional[str] = ..., undo: _Optional[bool] = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("state", "num_requests")
    STATE_FIELD_NUMBER: _ClassVar[int]
    NUM_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    state: _layout_pb2.WorkerState
    num_requests: int
    def __init__(self, state: _Optional[_Union[_layout_pb2.WorkerState, str]] = ..., num_requests: _Optional[int] = ...) -> None: ...

class CheckIntegrityRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CheckIntegrityResponse(_message.Message):
    __slots__ = ("num_blocks", "num_free_blocks", "num_used_blocks", "num_quarantined_blocks", "num_reservations", "num_requests", "num_used_host_blocks")
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_FREE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_USED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_QUARANTINED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_RESERVATIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    NUM_USED_HOST_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    num_blocks: int
    num_free_blocks: int
    num_used_blocks: int
    num_quarantined_blocks: int
    num_reservations: int
    num_requests: int
    num_used_host_blocks: int
    def __init__(self, num_blocks: _Optional[int] = ..., num_free_blocks: _Optional[int] = ..., num_used_blocks: _Optional[int] = ..., num_quarantined_blocks: _Optional[int] = ..., num_reservations: _Optional[int] = ..., num_requests: _Optional[int] = ..., num_used_host_blocks: _Optional[int] = ...) -> None: ...

class ListRequestsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRequestsResponse(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[RequestStatus]
    def __init__(self, requests: _Optional[_Iterable[_Union[RequestStatus, _Mapping]]] = ...) -> None: ...

class RequestStatus(_message.Message):
    __slots__ = ("request_id", "attempt", "choice_indices", "stage", "prompt_tokens", "output_tokens", "computed_tokens", "prefill_worker", "decode_worker")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHOICE_INDICES_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_WORKER_FIELD_NUMBER: _ClassVar[int]
    DECODE_WORKER_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    choice_indices: _containers.RepeatedScalarFieldContainer[int]
    stage: RequestStage
    prompt_tokens: int
    output_tokens: int
    computed_tokens: int
    prefill_worker: str
    decode_worker: str
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., choice_indices: _Optional[_Iterable[int]] = ..., stage: _Optional[_Union[RequestStage, str]] = ..., prompt_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., computed_tokens: _Optional[int] = ..., prefill_worker: _Optional[str] = ..., decode_worker: _Optional[str] = ...) -> None: ...

class ListTicketsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTicketsResponse(_message.Message):
    __slots__ = ("tickets",)
    TICKETS_FIELD_NUMBER: _ClassVar[int]
    tickets: _containers.RepeatedCompositeFieldContainer[TicketStatus]
    def __init__(self, tickets: _Optional[_Iterable[_Union[TicketStatus, _Mapping]]] = ...) -> None: ...

class TicketStatus(_message.Message):
    __slots__ = ("request_id", "attempt", "state", "source_worker_id", "received_bytes", "quarantined")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    state: TicketState
    source_worker_id: str
    received_bytes: int
    quarantined: bool
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., state: _Optional[_Union[TicketState, str]] = ..., source_worker_id: _Optional[str] = ..., received_bytes: _Optional[int] = ..., quarantined: _Optional[bool] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("request_id", "made_s", "prompt_tokens", "known_tokens", "plans", "cached_tokens", "ttft_ms", "missed", "diverged_at")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MADE_S_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PLANS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TTFT_MS_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    DIVERGED_AT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    made_s: float
    prompt_tokens: int
    known_tokens: int
    plans: _containers.RepeatedCompositeFieldContainer[ExplainedPlan]
    cached_tokens: int
    ttft_ms: float
    missed: _containers.RepeatedCompositeFieldContainer[MissedTokens]
    diverged_at: int
    def __init__(self, request_id: _Optional[str] = ..., made_s: _Optional[float] = ..., prompt_tokens: _Optional[int] = ..., known_tokens: _Optional[int] = ..., plans: _Optional[_Iterable[_Union[ExplainedPlan, _Mapping]]] = ..., cached_tokens: _Optional[int] = ..., ttft_ms: _Optional[float] = ..., missed: _Optional[_Iterable[_Union[MissedTokens, _Mapping]]] = ..., diverged_at: _Optional[int] = ...) -> None: ...

class ExplainedPlan(_message.Message):
    __slots__ = ("kind", "reason", "num_tokens", "prefill", "decode", "predicted_ttft_ms", "predicted_tpot_ms", "utilization", "typical_prefill_ms")
    KIND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    DECODE_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_TTFT_MS_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_TPOT_MS_FIELD_NUMBER: _ClassVar[int]
    UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    TYPICAL_PREFILL_MS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    reason: str
    num_tokens: int
    prefill: _containers.RepeatedCompositeFieldContainer[CandidateCost]
    decode: _containers.RepeatedCompositeFieldContainer[CandidateCost]
    predicted_ttft_ms: float
    predicted_tpot_ms: float
    utilization: float
    typical_prefill_ms: float
    def __init__(self, kind: _Optional[str] = ..., reason: _Optional[str] = ..., num_tokens: _Optional[int] = ..., prefill: _Optional[_Iterable[_Union[CandidateCost, _Mapping]]] = ..., decode: _Optional[_Iterable[_Union[CandidateCost, _Mapping]]] = ..., predicted_ttft_ms: _Optional[float] = ..., predicted_tpot_ms: _Optional[float] = ..., utilization: _Optional[float] = ..., typical_prefill_ms: _Optional[float] = ...) -> None: ...

class CandidateCost(_message.Message):
    __slots__ = ("worker_id", "cost", "terms", "cached_tokens", "has_room")
    class TermsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    HAS_ROOM_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    cost: float
    terms: _containers.ScalarMap[str, float]
    cached_tokens: int
    has_room: bool
    def __init__(self, worker_id: _Optional[str] = ..., cost: _Optional[float] = ..., terms: _Optional[_Mapping[str, float]] = ..., cached_tokens: _Optional[int] = ..., has_room: _Optional[bool] = ...) -> None: ...

class MissedTokens(_message.Message):
    __slots__ = ("cause", "num_tokens")
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    cause: str
    num_tokens: int
    def __init__(self, cause: _Optional[str] = ..., num_tokens: _Optional[int] = ...) -> None: ...
