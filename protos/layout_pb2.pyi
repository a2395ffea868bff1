from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_PREFILL: _ClassVar[Role]
    ROLE_DECODE: _ClassVar[Role]
    ROLE_BOTH: _ClassVar[Role]

class WorkerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_STATE_UNSPECIFIED: _ClassVar[WorkerState]
    WORKER_STATE_STARTING: _ClassVar[WorkerState]
    WORKER_STATE_READY: _ClassVar[WorkerState]
    WORKER_STATE_DRAINING: _ClassVar[WorkerState]
    WORKER_STATE_NOT_READY: _ClassVar[WorkerState]
    WORKER_STATE_REMOVED: _ClassVar[WorkerState]
    WORKER_STATE_DEAD: _ClassVar[WorkerState]

class KVCacheKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KV_CACHE_KIND_UNSPECIFIED: _ClassVar[KVCacheKind]
    KV_CACHE_KIND_FULL: _ClassVar[KVCacheKind]
    KV_CACHE_KIND_WINDOW: _ClassVar[KVCacheKind]
    KV_CACHE_KIND_LATENT: _ClassVar[KVCacheKind]
    KV_CACHE_KIND_STATE: _ClassVar[KVCacheKind]
ROLE_UNSPECIFIED: Role
ROLE_PREFILL: Role
ROLE_DECODE: Role
ROLE_BOTH: Role
WORKER_STATE_UNSPECIFIED: WorkerState
WORKER_STATE_STARTING: WorkerState
WORKER_STATE_READY: WorkerState
WORKER_STATE_DRAINING: WorkerState
WORKER_STATE_NOT_READY: WorkerState
WORKER_STATE_REMOVED: WorkerState
WORKER_STATE_DEAD: WorkerState
KV_CACHE_KIND_UNSPECIFIED: KVCacheKind
KV_CACHE_KIND_FULL: KVCacheKind
KV_CACHE_KIND_WINDOW: KVCacheKind
KV_CACHE_KIND_LATENT: KVCacheKind
KV_CACHE_KIND_STATE: KVCacheKind

class KVCacheGroup(_message.Message):
    __slots__ = ("group_id", "kind", "layers", "num_components", "num_kv_heads", "head_dim", "block_size", "dtype", "bytes_per_block")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    NUM_COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    NUM_KV_HEADS_FIELD_NUMBER: _ClassVar[int]
    HEAD_DIM_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_BLOCK_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    kind: KVCacheKind
    layers: _containers.RepeatedScalarFieldContainer[int]
    num_components: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: str
    bytes_per_block: int
    def __init__(self, group_id: _Optional[int] = ..., kind: _Optional[_Union[KVCacheKind, str]] = ..., layers: _Optional[_Iterable[int]] = ..., num_components: _Optional[int] = ..., num_kv_heads: _Optional[int] = ..., head_dim: _Optional[int] = ..., block_size: _Optional[int] = ..., dtype: _Optional[str] = ..., bytes_per_block: _Optional[int] = ...) -> None: ...

class KVCacheSpec(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[KVCacheGroup]
    def __init__(self, groups: _Optional[_Iterable[_Union[KVCacheGroup, _Mapping]]] = ...) -> None: ...

class RankEndpoint(_message.Message):
    __slots__ = ("rank", "address", "transports", "host_id", "island", "checksums")
    RANK_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TRANSPORTS_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    ISLAND_FIELD_NUMBER: _ClassVar[int]
    CHECKSUMS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    address: str
    transports: _containers.RepeatedScalarFieldContainer[str]
    host_id: str
    island: str
    checksums: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, rank: _Optional[int] = ..., address: _Optional[str] = ..., transports: _Optional[_Iterable[str]] = ..., host_id: _Optional[str] = ..., island: _Optional[str] = ..., checksums: _Optional[_Iterable[str]] = ...) -> None: ...
