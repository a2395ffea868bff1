from protos import layout_pb2 as _layout_pb2
from protos import worker_pb2 as _worker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

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

class CheckIntegrityRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CheckIntegrityResponse(_message.Message):
    __slots__ = ("num_blocks", "num_free_blocks", "num_used_blocks", "num_quarantined_blocks", "num_reservations", "num_requests")
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_FREE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_USED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_QUARANTINED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_RESERVATIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    num_blocks: int
    num_free_blocks: int
    num_used_blocks: int
    num_quarantined_blocks: int
    num_reservations: int
    num_requests: int
    def __init__(self, num_blocks: _Optional[int] = ..., num_free_blocks: _Optional[int] = ..., num_used_blocks: _Optional[int] = ..., num_quarantined_blocks: _Optional[int] = ..., num_reservations: _Optional[int] = ..., num_requests: _Optional[int] = ...) -> None: ...
