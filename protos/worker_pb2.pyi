from protos import layout_pb2 as _layout_pb2
from protos import sampling_pb2 as _sampling_pb2
from protos import transfer_pb2 as _transfer_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LegEndReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEG_END_REASON_UNSPECIFIED: _ClassVar[LegEndReason]
    LEG_END_REASON_HANDED_OVER: _ClassVar[LegEndReason]
    LEG_END_REASON_TRANSFER_FAILED: _ClassVar[LegEndReason]
    LEG_END_REASON_PREEMPTED: _ClassVar[LegEndReason]
    LEG_END_REASON_REJECTED: _ClassVar[LegEndReason]
    LEG_END_REASON_FAILED: _ClassVar[LegEndReason]
    LEG_END_REASON_CANCELLED: _ClassVar[LegEndReason]
    LEG_END_REASON_KEPT: _ClassVar[LegEndReason]
LEG_END_REASON_UNSPECIFIED: LegEndReason
LEG_END_REASON_HANDED_OVER: LegEndReason
LEG_END_REASON_TRANSFER_FAILED: LegEndReason
LEG_END_REASON_PREEMPTED: LegEndReason
LEG_END_REASON_REJECTED: LegEndReason
LEG_END_REASON_FAILED: LegEndReason
LEG_END_REASON_CANCELLED: LegEndReason
LEG_END_REASON_KEPT: LegEndReason

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RefuseRequest(_message.Message):
    __slots__ = ("router_id", "reason")
    ROUTER_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    router_id: str
    reason: str
    def __init__(self, router_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RefuseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WorkerRegistration(_message.Message):
    __slots__ = ("worker_id", "incarnation", "role", "role_generation", "state", "protocol_version", "model", "model_fingerprint", "max_model_len", "vocab_size", "eos_token_ids", "layout", "layout_fingerprint", "golden_key", "ranks", "domains", "index_stride", "software_version", "backend", "key_root", "max_num_batched_tokens", "lease_ms")
    class DomainsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ROLE_GENERATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    GOLDEN_KEY_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    INDEX_STRIDE_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    KEY_ROOT_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_BATCHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: int
    role: _layout_pb2.Role
    role_generation: int
    state: _layout_pb2.WorkerState
    protocol_version: int
    model: str
    model_fingerprint: bytes
    max_model_len: int
    vocab_size: int
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    layout: _layout_pb2.KVCacheSpec
    layout_fingerprint: bytes
    golden_key: bytes
    ranks: _containers.RepeatedCompositeFieldContainer[_layout_pb2.RankEndpoint]
    domains: _containers.ScalarMap[str, str]
    index_stride: int
    software_version: str
    backend: str
    key_root: bytes
    max_num_batched_tokens: int
    lease_ms: int
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., role: _Optional[_Union[_layout_pb2.Role, str]] = ..., role_generation: _Optional[int] = ..., state: _Optional[_Union[_layout_pb2.WorkerState, str]] = ..., protocol_version: _Optional[int] = ..., model: _Optional[str] = ..., model_fingerprint: _Optional[bytes] = ..., max_model_len: _Optional[int] = ..., vocab_size: _Optional[int] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., layout: _Optional[_Union[_layout_pb2.KVCacheSpec, _Mapping]] = ..., layout_fingerprint: _Optional[bytes] = ..., golden_key: _Optional[bytes] = ..., ranks: _Optional[_Iterable[_Union[_layout_pb2.RankEndpoint, _Mapping]]] = ..., domains: _Optional[_Mapping[str, str]] = ..., index_stride: _Optional[int] = ..., software_version: _Optional[str] = ..., backend: _Optional[str] = ..., key_root: _Optional[bytes] = ..., max_num_batched_tokens: _Optional[int] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class Leg(_message.Message):
    __slots__ = ("request_id", "attempt", "choice_indices", "prompt_token_ids", "output_token_ids", "sampling", "priority", "deadline_ms", "cache_salt", "canary", "expected_cached_tokens")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHOICE_INDICES_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    CANARY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    choice_indices: _containers.RepeatedScalarFieldContainer[int]
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    output_token_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling: _sampling_pb2.SamplingParams
    priority: int
    deadline_ms: int
    cache_salt: bytes
    canary: bool
    expected_cached_tokens: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., choice_indices: _Optional[_Iterable[int]] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., output_token_ids: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_sampling_pb2.SamplingParams, _Mapping]] = ..., priority: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., cache_salt: _Optional[bytes] = ..., canary: _Optional[bool] = ..., expected_cached_tokens: _Optional[int] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("hello", "submit", "cancel", "heartbeat", "keep", "move")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    hello: AttachHello
    submit: Submit
    cancel: Cancel
    heartbeat: Heartbeat
    keep: Keep
    move: Move
    def __init__(self, hello: _Optional[_Union[AttachHello, _Mapping]] = ..., submit: _Optional[_Union[Submit, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., keep: _Optional[_Union[Keep, _Mapping]] = ..., move: _Optional[_Union[Move, _Mapping]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Keep(_message.Message):
    __slots__ = ("request_id", "attempt", "choice_index")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHOICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    choice_index: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., choice_index: _Optional[int] = ...) -> None: ...

class Move(_message.Message):
    __slots__ = ("request_id", "kept_attempt", "choice_index", "attempt", "push_target")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    KEPT_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHOICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PUSH_TARGET_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    kept_attempt: int
    choice_index: int
    attempt: int
    push_target: _transfer_pb2.PushTarget
    def __init__(self, request_id: _Optional[str] = ..., kept_attempt: _Optional[int] = ..., choice_index: _Optional[int] = ..., attempt: _Optional[int] = ..., push_target: _Optional[_Union[_transfer_pb2.PushTarget, _Mapping]] = ...) -> None: ...

class AttachHello(_message.Message):
    __slots__ = ("router_id", "protocol_version")
    ROUTER_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    router_id: str
    protocol_version: int
    def __init__(self, router_id: _Optional[str] = ..., protocol_version: _Optional[int] = ...) -> None: ...

class Submit(_message.Message):
    __slots__ = ("leg", "push_target")
    LEG_FIELD_NUMBER: _ClassVar[int]
    PUSH_TARGET_FIELD_NUMBER: _ClassVar[int]
    leg: Leg
    push_target: _transfer_pb2.PushTarget
    def __init__(self, leg: _Optional[_Union[Leg, _Mapping]] = ..., push_target: _Optional[_Union[_transfer_pb2.PushTarget, _Mapping]] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("request_id", "attempt", "choice_indices")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHOICE_INDICES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    choice_indices: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., choice_indices: _Optional[_Iterable[int]] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("hello", "step")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    hello: WorkerRegistration
    step: StepOutput
    def __init__(self, hello: _Optional[_Union[WorkerRegistration, _Mapping]] = ..., step: _Optional[_Union[StepOutput, _Mapping]] = ...) -> None: ...

class StepOutput(_message.Message):
    __slots__ = ("outputs", "ends", "load")
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.RepeatedCompositeFieldContainer[ChoiceOutput]
    ends: _containers.RepeatedCompositeFieldContainer[LegEnd]
    load: LoadReport
    def __init__(self, outputs: _Optional[_Iterable[_Union[ChoiceOutput, _Mapping]]] = ..., ends: _Optional[_Iterable[_Union[LegEnd, _Mapping]]] = ..., load: _Optional[_Union[LoadReport, _Mapping]] = ...) -> None: ...

class ChoiceOutput(_message.Message):
    __slots__ = ("request_id", "attempt", "choice_index", "first_index", "token_ids", "logprobs", "finish_reason", "stop_token_id", "start")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHOICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    choice_index: int
    first_index: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[_sampling_pb2.TokenLogprob]
    finish_reason: _sampling_pb2.FinishReason
    stop_token_id: int
    start: LegStart
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., choice_index: _Optional[int] = ..., first_index: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[_Union[_sampling_pb2.TokenLogprob, _Mapping]]] = ..., finish_reason: _Optional[_Union[_sampling_pb2.FinishReason, str]] = ..., stop_token_id: _Optional[int] = ..., start: _Optional[_Union[LegStart, _Mapping]] = ...) -> None: ...

class LegStart(_message.Message):
    __slots__ = ("cached_tokens", "queue_ms", "prefill_ms", "prompt_logprobs")
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_MS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    cached_tokens: int
    queue_ms: float
    prefill_ms: float
    prompt_logprobs: _containers.RepeatedCompositeFieldContainer[_sampling_pb2.TokenLogprob]
    def __init__(self, cached_tokens: _Optional[int] = ..., queue_ms: _Optional[float] = ..., prefill_ms: _Optional[float] = ..., prompt_logprobs: _Optional[_Iterable[_Union[_sampling_pb2.TokenLogprob, _Mapping]]] = ...) -> None: ...

class LegEnd(_message.Message):
    __slots__ = ("request_id", "attempt", "choice_indices", "reason", "status", "message", "sent_bytes", "sent_blocks", "transfer_ms", "push_ms", "num_output_tokens")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHOICE_INDICES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_MS_FIELD_NUMBER: _ClassVar[int]
    PUSH_MS_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    choice_indices: _containers.RepeatedScalarFieldContainer[int]
    reason: LegEndReason
    status: str
    message: str
    sent_bytes: int
    sent_blocks: int
    transfer_ms: float
    push_ms: float
    num_output_tokens: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., choice_indices: _Optional[_Iterable[int]] = ..., reason: _Optional[_Union[LegEndReason, str]] = ..., status: _Optional[str] = ..., message: _Optional[str] = ..., sent_bytes: _Optional[int] = ..., sent_blocks: _Optional[int] = ..., transfer_ms: _Optional[float] = ..., push_ms: _Optional[float] = ..., num_output_tokens: _Optional[int] = ...) -> None: ...

class LoadReport(_message.Message):
    __slots__ = ("num_running", "num_waiting", "num_waiting_tokens", "num_reservations", "num_blocks", "num_free_blocks", "num_cached_blocks", "num_quarantined_blocks", "prefix_query_tokens", "prefix_hit_tokens", "num_preemptions", "sent_bytes", "received_bytes", "sent_blocks", "received_blocks", "num_generated_tokens", "num_prefilled_tokens", "max_num_seqs", "num_running_tokens", "queue_s", "busy_s", "num_submits_taken", "step_times", "num_routers", "num_swapped", "num_host_blocks", "num_free_host_blocks", "num_swap_outs", "swapped_out_blocks", "swapped_in_blocks", "sent_bytes_by_transport", "transport_fallbacks", "index")
    class SentBytesByTransportEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class TransportFallbacksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_RESERVATIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_FREE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_QUARANTINED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_QUERY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_HIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREFILLED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNNING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_S_FIELD_NUMBER: _ClassVar[int]
    BUSY_S_FIELD_NUMBER: _ClassVar[int]
    NUM_SUBMITS_TAKEN_FIELD_NUMBER: _ClassVar[int]
    STEP_TIMES_FIELD_NUMBER: _ClassVar[int]
    NUM_ROUTERS_FIELD_NUMBER: _ClassVar[int]
    NUM_SWAPPED_FIELD_NUMBER: _ClassVar[int]
    NUM_HOST_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_FREE_HOST_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_SWAP_OUTS_FIELD_NUMBER: _ClassVar[int]
    SWAPPED_OUT_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    SWAPPED_IN_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_BY_TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FALLBACKS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    num_running: int
    num_waiting: int
    num_waiting_tokens: int
    num_reservations: int
    num_blocks: int
    num_free_blocks: int
    num_cached_blocks: int
    num_quarantined_blocks: int
    prefix_query_tokens: int
    prefix_hit_tokens: int
    num_preemptions: int
    sent_bytes: int
    received_bytes: int
    sent_blocks: int
    received_blocks: int
    num_generated_tokens: int
    num_prefilled_tokens: int
    max_num_seqs: int
    num_running_tokens: int
    queue_s: float
    busy_s: float
    num_submits_taken: int
    step_times: StepTimes
    num_routers: int
    num_swapped: int
    num_host_blocks: int
    num_free_host_blocks: int
    num_swap_outs: int
    swapped_out_blocks: int
    swapped_in_blocks: int
    sent_bytes_by_transport: _containers.ScalarMap[str, int]
    transport_fallbacks: _containers.ScalarMap[str, int]
    index: IndexState
    def __init__(self, num_running: _Optional[int] = ..., num_waiting: _Optional[int] = ..., num_waiting_tokens: _Optional[int] = ..., num_reservations: _Optional[int] = ..., num_blocks: _Optional[int] = ..., num_free_blocks: _Optional[int] = ..., num_cached_blocks: _Optional[int] = ..., num_quarantined_blocks: _Optional[int] = ..., prefix_query_tokens: _Optional[int] = ..., prefix_hit_tokens: _Optional[int] = ..., num_preemptions: _Optional[int] = ..., sent_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ..., sent_blocks: _Optional[int] = ..., received_blocks: _Optional[int] = ..., num_generated_tokens: _Optional[int] = ..., num_prefilled_tokens: _Optional[int] = ..., max_num_seqs: _Optional[int] = ..., num_running_tokens: _Optional[int] = ..., queue_s: _Optional[float] = ..., busy_s: _Optional[float] = ..., num_submits_taken: _Optional[int] = ..., step_times: _Optional[_Union[StepTimes, _Mapping]] = ..., num_routers: _Optional[int] = ..., num_swapped: _Optional[int] = ..., num_host_blocks: _Optional[int] = ..., num_free_host_blocks: _Optional[int] = ..., num_swap_outs: _Optional[int] = ..., swapped_out_blocks: _Optional[int] = ..., swapped_in_blocks: _Optional[int] = ..., sent_bytes_by_transport: _Optional[_Mapping[str, int]] = ..., transport_fallbacks: _Optional[_Mapping[str, int]] = ..., index: _Optional[_Union[IndexState, _Mapping]] = ...) -> None: ...

class IndexState(_message.Message):
    __slots__ = ("num_points", "num_pending", "num_dropped", "num_away_shards", "num_registrations")
    NUM_POINTS_FIELD_NUMBER: _ClassVar[int]
    NUM_PENDING_FIELD_NUMBER: _ClassVar[int]
    NUM_DROPPED_FIELD_NUMBER: _ClassVar[int]
    NUM_AWAY_SHARDS_FIELD_NUMBER: _ClassVar[int]
    NUM_REGISTRATIONS_FIELD_NUMBER: _ClassVar[int]
    num_points: int
    num_pending: int
    num_dropped: int
    num_away_shards: int
    num_registrations: int
    def __init__(self, num_points: _Optional[int] = ..., num_pending: _Optional[int] = ..., num_dropped: _Optional[int] = ..., num_away_shards: _Optional[int] = ..., num_registrations: _Optional[int] = ...) -> None: ...

class StepTimes(_message.Message):
    __slots__ = ("step_s", "prefill_token_s", "prefill_pair_s", "decode_request_s", "decode_kv_token_s", "num_steps")
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    PREFILL_TOKEN_S_FIELD_NUMBER: _ClassVar[int]
    PREFILL_PAIR_S_FIELD_NUMBER: _ClassVar[int]
    DECODE_REQUEST_S_FIELD_NUMBER: _ClassVar[int]
    DECODE_KV_TOKEN_S_FIELD_NUMBER: _ClassVar[int]
    NUM_STEPS_FIELD_NUMBER: _ClassVar[int]
    step_s: float
    prefill_token_s: float
    prefill_pair_s: float
    decode_request_s: float
    decode_kv_token_s: float
    num_steps: int
    def __init__(self, step_s: _Optional[float] = ..., prefill_token_s: _Optional[float] = ..., prefill_pair_s: _Optional[float] = ..., decode_request_s: _Optional[float] = ..., decode_kv_token_s: _Optional[float] = ..., num_steps: _Optional[int] = ...) -> None: ...

class ReserveRequest(_message.Message):
    __slots__ = ("router_id", "leg", "source_worker_id", "reason", "map_now", "map_after_ms")
    ROUTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEG_FIELD_NUMBER: _ClassVar[int]
    SOURCE_WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MAP_NOW_FIELD_NUMBER: _ClassVar[int]
    MAP_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    router_id: str
    leg: Leg
    source_worker_id: str
    reason: _transfer_pb2.TransferReason
    map_now: bool
    map_after_ms: int
    def __init__(self, router_id: _Optional[str] = ..., leg: _Optional[_Union[Leg, _Mapping]] = ..., source_worker_id: _Optional[str] = ..., reason: _Optional[_Union[_transfer_pb2.TransferReason, str]] = ..., map_now: _Optional[bool] = ..., map_after_ms: _Optional[int] = ...) -> None: ...

class ReserveResponse(_message.Message):
    __slots__ = ("ticket", "credit_tokens", "map", "sink_ranks", "cached_blocks", "load")
    TICKET_FIELD_NUMBER: _ClassVar[int]
    CREDIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAP_FIELD_NUMBER: _ClassVar[int]
    SINK_RANKS_FIELD_NUMBER: _ClassVar[int]
    CACHED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    ticket: _transfer_pb2.Ticket
    credit_tokens: int
    map: _transfer_pb2.BlockMap
    sink_ranks: _containers.RepeatedCompositeFieldContainer[_layout_pb2.RankEndpoint]
    cached_blocks: int
    load: LoadReport
    def __init__(self, ticket: _Optional[_Union[_transfer_pb2.Ticket, _Mapping]] = ..., credit_tokens: _Optional[int] = ..., map: _Optional[_Union[_transfer_pb2.BlockMap, _Mapping]] = ..., sink_ranks: _Optional[_Iterable[_Union[_layout_pb2.RankEndpoint, _Mapping]]] = ..., cached_blocks: _Optional[int] = ..., load: _Optional[_Union[LoadReport, _Mapping]] = ...) -> None: ...

class AbortRequest(_message.Message):
    __slots__ = ("ticket_id", "reason")
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ticket_id: str
    reason: str
    def __init__(self, ticket_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class AbortResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("ticket_id",)
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    ticket_id: str
    def __init__(self, ticket_id: _Optional[str] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
