"""Settings of each process, validated. Where they come from (flags, environment, TOML) is `slipstream.settings`.

`metadata["help"]` is the one text that the command line and the documentation show for a field.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from common.errors import ConfigError


class Role(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"


class DType(StrEnum):
    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


def setting(default: Any, help: str) -> Any:
    """A config field with its help text."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """One engine: model, memory and batch limits. Sizes are tokens unless the name says otherwise."""

    model: str = setting("demo", "local HF folder, GGUF file, hub id, or 'demo' (SmolLM2-135M-Instruct)")
    served_model_name: str | None = setting(None, "name that callers use; default: the model's own")
    dtype: DType = setting(DType.AUTO, "dtype of weights and KV cache; auto: the checkpoint's")
    max_model_len: int | None = setting(None, "longest prompt and answer together, tokens; default: the model's")
    max_num_seqs: int = setting(64, "requests in the batch at most")
    max_num_batched_tokens: int = setting(2048, "tokens that one step computes at most; longer prompts are chunked")
    max_num_waiting: int = setting(256, "requests in the queue at most; more are refused")
    block_size: int = setting(16, "tokens per KV block: a power of two from 8 to 256")
    kv_memory: str | None = setting(None, "memory of the KV cache (512MiB, 4GB, …); default: a share of what is free")
    kv_memory_share: float = setting(0.4, "share of the free memory for the KV cache when kv-memory is not given")
    num_threads: int | None = setting(None, "CPU threads of the engine; default: the cores it may use")
    device: str = setting("auto", "cpu, cuda, cuda:N; auto: cuda when there is one")
    attention_backend: str = setting("auto", "auto or torch")

    def __post_init__(self) -> None:
        if self.block_size not in (8, 16, 32, 64, 128, 256):
            raise ConfigError("block_size", f"must be a power of two from 8 to 256, is {self.block_size}")
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_num_waiting"):
            _check_positive(name, getattr(self, name))
        for name in ("max_model_len", "num_threads"):
            if getattr(self, name) is not None:
                _check_positive(name, getattr(self, name))
        if not 0.0 < self.kv_memory_share <= 0.95:
            raise ConfigError("kv_memory_share", f"must be above 0 and at most 0.95, is {self.kv_memory_share}")
        if self.kv_memory is not None:
            parse_bytes("kv_memory", self.kv_memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexConfig:
    """The global prefix index in Redis or Valkey."""

    index_url: str | None = setting(
        None, "redis://host:port of the prefix index; none: `up` starts its own, others go by --worker"
    )
    index_stride: int = setting(64, "tokens between published prefix points: a multiple of the block size")
    index_deadline_ms: float = setting(20.0, "milliseconds that a lookup may take before routing goes on without it")
    namespace: str = setting("default", "fleets with different namespaces share one index server apart")

    def __post_init__(self) -> None:
        _check_positive("index_stride", self.index_stride)
        if self.index_deadline_ms <= 0:
            raise ConfigError("index_deadline_ms", f"must be above 0, is {self.index_deadline_ms}")
        schemes = ("redis://", "rediss://", "unix://", "redis+cluster://", "rediss+cluster://")
        if self.index_url is not None and not self.index_url.startswith(schemes):
            raise ConfigError("index_url", f"must start with one of {', '.join(schemes)}, is {self.index_url!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """A prefill or decode worker process."""

    engine: EngineConfig = field(default_factory=EngineConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    role: Role = field(
        default=Role.DECODE,
        metadata={
            "help": "decode: takes over from prefill workers; both: prefills everything by itself",
            "choices": (Role.DECODE, Role.BOTH),  # a prefill worker has a command of its own
        },
    )
    worker_id: str | None = setting(None, "name in the fleet; default: role, host and port")
    host: str = setting("127.0.0.1", "address to listen on; 0.0.0.0 for all")
    port: int = setting(0, "port to listen on; 0: any free one")
    advertise: str | None = setting(None, "host:port that others reach this worker by; default: host and port")
    lease_s: float = setting(10.0, "seconds that a ticket or registration lives without a word")

    def __post_init__(self) -> None:
        _check_port("port", self.port)
        if self.lease_s <= 0:
            raise ConfigError("lease_s", f"must be above 0, is {self.lease_s}")
        if self.index.index_stride % self.engine.block_size:
            raise ConfigError(
                "index_stride",
                f"must be a multiple of block_size {self.engine.block_size}, is {self.index.index_stride}",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """A router process."""

    index: IndexConfig = field(default_factory=IndexConfig)
    model: str = setting("demo", "local HF folder, GGUF file, hub id, or 'demo': for tokenizer and chat template")
    served_model_name: str | None = setting(None, "name that callers use; default: the model's own")
    router_id: str | None = setting(
        None, "name in the fleet, of one router alone; default: made from host, port and chance"
    )
    host: str = setting("127.0.0.1", "address to listen on; 0.0.0.0 for all")
    grpc_port: int = setting(50051, "port of the gRPC API; 0: any free one")
    http_port: int = setting(8000, "port of the OpenAI HTTP API; 0: any free one")
    worker: tuple[str, ...] = setting((), "host:port of a worker, beside those that register in the index; repeatable")
    min_workers: int = setting(1, "workers that must be up before the router first says that it is ready")
    policy: str = setting("prefix_aware", "prefix_aware, round_robin, least_loaded")
    max_num_requests: int = setting(1024, "requests at once at most; more are refused")
    max_attempts: int = setting(4, "times that one request is planned at most")
    text_threads: int = setting(2, "threads that tokenise and render templates")

    def __post_init__(self) -> None:
        _check_port("grpc_port", self.grpc_port)
        _check_port("http_port", self.http_port)
        for name in ("min_workers", "max_num_requests", "max_attempts", "text_threads"):
            _check_positive(name, getattr(self, name))
        if self.policy not in ("prefix_aware", "round_robin", "least_loaded"):
            raise ConfigError("policy", f"must be prefix_aware, round_robin or least_loaded, is {self.policy!r}")
        for address in self.worker:
            if ":" not in address:
                raise ConfigError("worker", f"must be host:port, is {address!r}")


def parse_bytes(field_name: str, text: str) -> int:
    """Bytes of '512MiB', '4GB', '1073741824'. Raises ConfigError that names the field."""
    units = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
    stripped = text.strip().lower()
    number = stripped.rstrip("bgikm")
    unit = stripped[len(number) :]
    try:
        size = int(float(number) * units[unit])
    except (ValueError, KeyError, OverflowError):
        raise ConfigError(field_name, f"must be a size such as 512MiB or 4GB, is {text!r}") from None
    if size <= 0:
        raise ConfigError(field_name, f"must be above 0, is {text!r}")
    return size


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ConfigError(name, f"must be at least 1, is {value}")


def _check_port(name: str, value: int) -> None:
    if not 0 <= value <= 65535:
        raise ConfigError(name, f"must be a port from 0 to 65535, is {value}")
