from protos import layout_pb2 as _layout_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransferReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSFER_REASON_UNSPECIFIED: _ClassVar[TransferReason]
    TRANSFER_REASON_HANDOVER: _ClassVar[TransferReason]
    TRANSFER_REASON_DRAIN: _ClassVar[TransferReason]
    TRANSFER_REASON_MIGRATION: _ClassVar[TransferReason]
    TRANSFER_REASON_PEER_FETCH: _ClassVar[TransferReason]

class ChecksumKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHECKSUM_KIND_UNSPECIFIED: _ClassVar[ChecksumKind]
    CHECKSUM_KIND_NONE: _ClassVar[ChecksumKind]
    CHECKSUM_KIND_CRC32: _ClassVar[ChecksumKind]
    CHECKSUM_KIND_XXH3_64: _ClassVar[ChecksumKind]
TRANSFER_REASON_UNSPECIFIED: TransferReason
TRANSFER_REASON_HANDOVER: TransferReason
TRANSFER_REASON_DRAIN: TransferReason
TRANSFER_REASON_MIGRATION: TransferReason
TRANSFER_REASON_PEER_FETCH: TransferReason
CHECKSUM_KIND_UNSPECIFIED: ChecksumKind
CHECKSUM_KIND_NONE: ChecksumKind
CHECKSUM_KIND_CRC32: ChecksumKind
CHECKSUM_KIND_XXH3_64: ChecksumKind

class Ticket(_message.Message):
    __slots__ = ("ticket_id", "source_worker_id", "sink_worker_id", "sink_incarnation", "reason", "generation", "lease_ms")
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SINK_WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SINK_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    ticket_id: str
    source_worker_id: str
    sink_worker_id: str
    sink_incarnation: int
    reason: TransferReason
    generation: int
    lease_ms: int
    def __init__(self, ticket_id: _Optional[str] = ..., source_worker_id: _Optional[str] = ..., sink_worker_id: _Optional[str] = ..., sink_incarnation: _Optional[int] = ..., reason: _Optional[_Union[TransferReason, str]] = ..., generation: _Optional[int] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class BlockMap(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupBlockMap]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupBlockMap, _Mapping]]] = ...) -> None: ...

class GroupBlockMap(_message.Message):
    __slots__ = ("group_id", "block_ids", "present")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    block_ids: _containers.RepeatedScalarFieldContainer[int]
    present: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, group_id: _Optional[int] = ..., block_ids: _Optional[_Iterable[int]] = ..., present: _Optional[_Iterable[bool]] = ...) -> None: ...

class MapRequest(_message.Message):
    __slots__ = ("ticket_id",)
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    ticket_id: str
    def __init__(self, ticket_id: _Optional[str] = ...) -> None: ...

class MapResponse(_message.Message):
    __slots__ = ("ticket", "map")
    TICKET_FIELD_NUMBER: _ClassVar[int]
    MAP_FIELD_NUMBER: _ClassVar[int]
    ticket: Ticket
    map: BlockMap
    def __init__(self, ticket: _Optional[_Union[Ticket, _Mapping]] = ..., map: _Optional[_Union[BlockMap, _Mapping]] = ...) -> None: ...

class PushTarget(_message.Message):
    __slots__ = ("ticket", "sink_ranks", "map")
    TICKET_FIELD_NUMBER: _ClassVar[int]
    SINK_RANKS_FIELD_NUMBER: _ClassVar[int]
    MAP_FIELD_NUMBER: _ClassVar[int]
    ticket: Ticket
    sink_ranks: _containers.RepeatedCompositeFieldContainer[_layout_pb2.RankEndpoint]
    map: BlockMap
    def __init__(self, ticket: _Optional[_Union[Ticket, _Mapping]] = ..., sink_ranks: _Optional[_Iterable[_Union[_layout_pb2.RankEndpoint, _Mapping]]] = ..., map: _Optional[_Union[BlockMap, _Mapping]] = ...) -> None: ...

class PushFrame(_message.Message):
    __slots__ = ("header", "payload")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    header: PushHeader
    payload: bytes
    def __init__(self, header: _Optional[_Union[PushHeader, _Mapping]] = ..., payload: _Optional[bytes] = ...) -> None: ...

class PushHeader(_message.Message):
    __slots__ = ("ticket_id", "generation", "rank", "group_id", "extents")
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    EXTENTS_FIELD_NUMBER: _ClassVar[int]
    ticket_id: str
    generation: int
    rank: int
    group_id: int
    extents: _containers.RepeatedCompositeFieldContainer[Extent]
    def __init__(self, ticket_id: _Optional[str] = ..., generation: _Optional[int] = ..., rank: _Optional[int] = ..., group_id: _Optional[int] = ..., extents: _Optional[_Iterable[_Union[Extent, _Mapping]]] = ...) -> None: ...

class Extent(_message.Message):
    __slots__ = ("logical_block", "offset", "length")
    LOGICAL_BLOCK_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    logical_block: int
    offset: int
    length: int
    def __init__(self, logical_block: _Optional[int] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class PushResponse(_message.Message):
    __slots__ = ("received_bytes",)
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    received_bytes: int
    def __init__(self, received_bytes: _Optional[int] = ...) -> None: ...

class AnnounceRequest(_message.Message):
    __slots__ = ("open", "batch")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    open: AnnounceOpen
    batch: Batch
    def __init__(self, open: _Optional[_Union[AnnounceOpen, _Mapping]] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ...) -> None: ...

class AnnounceOpen(_message.Message):
    __slots__ = ("ticket_id", "generation", "rank", "shared_memory", "pair", "nixl")
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SHARED_MEMORY_FIELD_NUMBER: _ClassVar[int]
    PAIR_FIELD_NUMBER: _ClassVar[int]
    NIXL_FIELD_NUMBER: _ClassVar[int]
    ticket_id: str
    generation: int
    rank: int
    shared_memory: SharedMemoryLane
    pair: PairLane
    nixl: NixlLane
    def __init__(self, ticket_id: _Optional[str] = ..., generation: _Optional[int] = ..., rank: _Optional[int] = ..., shared_memory: _Optional[_Union[SharedMemoryLane, _Mapping]] = ..., pair: _Optional[_Union[PairLane, _Mapping]] = ..., nixl: _Optional[_Union[NixlLane, _Mapping]] = ...) -> None: ...

class SharedMemoryLane(_message.Message):
    __slots__ = ("name", "nonce", "slot_bytes", "num_slots")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SLOT_BYTES_FIELD_NUMBER: _ClassVar[int]
    NUM_SLOTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    nonce: bytes
    slot_bytes: int
    num_slots: int
    def __init__(self, name: _Optional[str] = ..., nonce: _Optional[bytes] = ..., slot_bytes: _Optional[int] = ..., num_slots: _Optional[int] = ...) -> None: ...

class PairLane(_message.Message):
    __slots__ = ("pair_id",)
    PAIR_ID_FIELD_NUMBER: _ClassVar[int]
    pair_id: str
    def __init__(self, pair_id: _Optional[str] = ...) -> None: ...

class NixlLane(_message.Message):
    __slots__ = ("agent_metadata", "agent_name")
    AGENT_METADATA_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    agent_metadata: bytes
    agent_name: str
    def __init__(self, agent_metadata: _Optional[bytes] = ..., agent_name: _Optional[str] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("group_id", "extents", "slot", "addresses", "device_id", "device_memory")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    EXTENTS_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    extents: _containers.RepeatedCompositeFieldContainer[Extent]
    slot: int
    addresses: _containers.RepeatedScalarFieldContainer[int]
    device_id: int
    device_memory: bool
    def __init__(self, group_id: _Optional[int] = ..., extents: _Optional[_Iterable[_Union[Extent, _Mapping]]] = ..., slot: _Optional[int] = ..., addresses: _Optional[_Iterable[int]] = ..., device_id: _Optional[int] = ..., device_memory: _Optional[bool] = ...) -> None: ...

class AnnounceResponse(_message.Message):
    __slots__ = ("num_taken",)
    NUM_TAKEN_FIELD_NUMBER: _ClassVar[int]
    num_taken: int
    def __init__(self, num_taken: _Optional[int] = ...) -> None: ...

class PairRequest(_message.Message):
    __slots__ = ("open", "entry")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    open: PairOpen
    entry: StoreEntry
    def __init__(self, open: _Optional[_Union[PairOpen, _Mapping]] = ..., entry: _Optional[_Union[StoreEntry, _Mapping]] = ...) -> None: ...

class PairOpen(_message.Message):
    __slots__ = ("pair_id", "island", "worker_id")
    PAIR_ID_FIELD_NUMBER: _ClassVar[int]
    ISLAND_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    pair_id: str
    island: str
    worker_id: str
    def __init__(self, pair_id: _Optional[str] = ..., island: _Optional[str] = ..., worker_id: _Optional[str] = ...) -> None: ...

class PairResponse(_message.Message):
    __slots__ = ("entry", "formed")
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    FORMED_FIELD_NUMBER: _ClassVar[int]
    entry: StoreEntry
    formed: bool
    def __init__(self, entry: _Optional[_Union[StoreEntry, _Mapping]] = ..., formed: _Optional[bool] = ...) -> None: ...

class StoreEntry(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("ticket_id", "generation", "rank", "num_ranks", "num_computed_tokens", "groups", "first_tokens", "attempt", "checksum_kind")
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    NUM_RANKS_FIELD_NUMBER: _ClassVar[int]
    NUM_COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_KIND_FIELD_NUMBER: _ClassVar[int]
    ticket_id: str
    generation: int
    rank: int
    num_ranks: int
    num_computed_tokens: int
    groups: _containers.RepeatedCompositeFieldContainer[GroupCommit]
    first_tokens: _containers.RepeatedCompositeFieldContainer[FirstToken]
    attempt: int
    checksum_kind: ChecksumKind
    def __init__(self, ticket_id: _Optional[str] = ..., generation: _Optional[int] = ..., rank: _Optional[int] = ..., num_ranks: _Optional[int] = ..., num_computed_tokens: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[GroupCommit, _Mapping]]] = ..., first_tokens: _Optional[_Iterable[_Union[FirstToken, _Mapping]]] = ..., attempt: _Optional[int] = ..., checksum_kind: _Optional[_Union[ChecksumKind, str]] = ...) -> None: ...

class GroupCommit(_message.Message):
    __slots__ = ("group_id", "logical_blocks", "checksums", "digests")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    LOGICAL_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUMS_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    group_id: int
    logical_blocks: _containers.RepeatedScalarFieldContainer[int]
    checksums: _containers.RepeatedScalarFieldContainer[int]
    digests: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group_id: _Optional[int] = ..., logical_blocks: _Optional[_Iterable[int]] = ..., checksums: _Optional[_Iterable[int]] = ..., digests: _Optional[_Iterable[int]] = ...) -> None: ...

class FirstToken(_message.Message):
    __slots__ = ("choice_index", "token_id", "finished")
    CHOICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    choice_index: int
    token_id: int
    finished: bool
    def __init__(self, choice_index: _Optional[int] = ..., token_id: _Optional[int] = ..., finished: _Optional[bool] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FailRequest(_message.Message):
    __slots__ = ("ticket_id", "generation", "reason")
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ticket_id: str
    generation: int
    reason: str
    def __init__(self, ticket_id: _Optional[str] = ..., generation: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class FailResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
