"""Settings of each process, validated. Where they come from (flags, environment, TOML) is `slipstream.settings`.

`metadata["help"]` is the one text that the command line and the documentation show for a field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from common.address import check_address, is_wildcard
from common.errors import ConfigError

POLICIES = ("prefix_aware", "round_robin", "least_loaded", "power_of_two", "consistent_hash")
ATTENTION_BACKENDS = ("auto", "native", "torch")
TRANSPORTS = ("shm", "island", "nixl", "grpc")
CHECKSUMS = ("xxh3_64", "none")
BLOCK_SIZES = (8, 16, 32, 64, 128, 256)
# Texts that two configs share.
POLICY_HELP = (
    "how workers are chosen: by what cached prefix and load let expect, by turns, by load alone, the less loaded of "
    "two drawn by chance, or by the prompt's beginning alone"
)
LOCAL_PREFILL_HELP = (
    "uncached tokens at most that a decode worker which holds the rest of the prompt computes itself, where that is "
    "cheaper than a prefill worker and a transfer; 0: never"
)
DRAIN_HELP = (
    "seconds after SIGTERM in which a worker finishes its requests or moves them to other workers, and a router lets "
    "its answers end; those that it cuts off then go on at another router where the Slipstream client asked for them"
)
PROBE_HELP = (
    "seconds between the generations of two tokens by which a router that is ready checks that answers still come; 0: "
    "never again"
)
LEASE_HELP = "seconds that a registration, or blocks reserved for a prompt, last without a sign of life"
NAMESPACE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
LOG_LEVELS = ("debug", "info", "warning", "error")
TLS_HELP = "folder with ca.crt, tls.crt and tls.key, or one that `slipstream certs` made; default: no TLS"
API_KEYS_HELP = (
    "TOML file of tenants, the hashes of their keys and their limits (docs/security.md), read again when it changes; "
    "default: anyone may call who reaches the router"
)
_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
_SIZE = re.compile(r"(?P<number>\d+(\.\d*)?)\s*(?P<unit>[a-z]*)")
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


class Role(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"


class DType(StrEnum):
    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


def setting(default: Any, help: str, *, choices: tuple[str, ...] = ()) -> Any:
    """A config field with its help text. `choices` are the values that it may have; none: its type says it."""
    return field(default=default, metadata={"help": help, **({"choices": choices} if choices else {})})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """One engine: model, memory and batch limits. Sizes are tokens unless the name says otherwise."""

    model: str = setting("demo", "Hugging Face folder, .gguf file, hub id, or 'demo': SmolLM2-135M-Instruct")
    served_model_name: str | None = setting(None, "name that callers use; default: the model's own")
    dtype: DType = setting(
        DType.AUTO,
        "dtype of weights and KV cache; auto: the checkpoint's. float32 alone promises the same tokens however a "
        "prompt is cached, chunked, batched or split between workers",
    )
    max_model_len: int | None = setting(None, "longest prompt and answer together, tokens; default: the model's")
    max_num_seqs: int = setting(64, "requests that a worker computes at the same time, at most")
    max_num_batched_tokens: int | None = setting(
        None,
        "tokens that one step computes at most; longer prompts are computed in chunks; default: 512 on CPUs, 2048 on "
        "GPUs",
    )
    max_num_waiting: int = setting(256, "requests that wait at a worker at most; more are refused")
    block_size: int = setting(16, "tokens per KV block: a power of two from 8 to 256")
    kv_memory: str | None = setting(
        None, "memory of a worker's KV cache, such as 512MiB or 4GB (kB to TB, KiB to TiB); default: by kv-memory-share"
    )
    kv_memory_share: float = setting(
        0.4, "share of the free memory that KV caches take, above 0 to 0.95, when kv-memory is not given"
    )
    swap_space: str | None = setting(
        None,
        "host memory of a worker for the KV of requests that must give way when its KV cache is full, such as 4GB; 0: "
        "none, they are computed anew; default: a quarter of the KV cache's, at most 4GiB",
    )
    num_threads: int | None = setting(None, "CPU threads of a worker; default: as many as it has cores")
    device: str = setting("auto", "cpu, cuda or cuda:N; auto: cuda when there is one, else cpu")
    attention_backend: str = setting(
        "auto",
        "code that computes attention, and on CPUs, native, whole decode steps; auto: native where it was built and "
        "can serve the model, else torch",
        choices=ATTENTION_BACKENDS,
    )

    def __post_init__(self) -> None:
        if self.block_size not in BLOCK_SIZES:
            raise ConfigError("block_size", f"must be a power of two from 8 to 256, is {self.block_size}")
        for name in ("max_num_seqs", "max_num_waiting"):
            _check_positive(name, getattr(self, name))
        for name in ("max_num_batched_tokens", "max_model_len", "num_threads"):
            if getattr(self, name) is not None:
                _check_positive(name, getattr(self, name))
        if not 0.0 < self.kv_memory_share <= 0.95:
            raise ConfigError("kv_memory_share", f"must be above 0 and at most 0.95, is {self.kv_memory_share}")
        if self.kv_memory is not None:
            parse_bytes("kv_memory", self.kv_memory)
        if self.swap_space is not None:
            parse_bytes("swap_space", self.swap_space, least=0)
        if not _DEVICE.fullmatch(self.device):
            raise ConfigError("device", f"must be auto, cpu, cuda or cuda:N, is {self.device!r}")
        check_choice("attention_backend", self.attention_backend, ATTENTION_BACKENDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexConfig:
    """The global prefix index in Redis or Valkey."""

    index_url: str | None = setting(
        None,
        "redis://host:port of the prefix index, a Redis (7.0 or newer) or Valkey server, through which processes find "
        "each other; default: `up` starts one of its own, other commands use none",
    )
    index_stride: int = setting(
        64, "tokens between the prefix lengths that the index knows: a multiple of the block size, the same everywhere"
    )
    index_deadline_ms: float = setting(20.0, "milliseconds that a lookup may take; routing then goes on without it")
    namespace: str = setting("default", "keeps fleets apart that use the same index server")

    def __post_init__(self) -> None:
        _check_positive("index_stride", self.index_stride)
        if self.index_deadline_ms <= 0:
            raise ConfigError("index_deadline_ms", f"must be above 0, is {self.index_deadline_ms}")
        if not NAMESPACE.fullmatch(self.namespace):
            raise ConfigError("namespace", f"must be 1 to 64 of A-Z a-z 0-9 _ . -, is {self.namespace!r}")
        schemes = ("redis://", "rediss://", "unix://", "redis+cluster://", "rediss+cluster://")
        if self.index_url is not None and not self.index_url.startswith(schemes):
            raise ConfigError("index_url", f"must start with one of {', '.join(schemes)}, is {self.index_url!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessConfig:
    """What every serving process has, whatever it serves."""

    tls_dir: str | None = setting(None, TLS_HELP)
    log_level: str = setting("info", "the least that is logged", choices=LOG_LEVELS)

    def __post_init__(self) -> None:
        check_choice("log_level", self.log_level, LOG_LEVELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferConfig:
    """How KV blocks move between workers."""

    kv_transports: tuple[str, ...] = setting(
        ("shm", "island", "grpc"),
        "what may carry KV blocks between workers, best first: shm (shared memory, on one host), island (torch "
        "point-to-point, with --island), nixl (needs the extra of that name), and grpc, which the others fall back to",
    )
    kv_checksum: str = setting(
        "xxh3_64",
        "checksum of each KV block; none: blocks are sent, and taken, unchecked",
        choices=CHECKSUMS,
    )
    shm_directory: str = setting(
        "/dev/shm", "memory file system that workers of one host share; containers need it in common"
    )
    island: str | None = setting(
        None, "name of the group of workers that may form point-to-point groups, a trusted network of few peers"
    )
    max_island_peers: int = setting(16, "peers of its island that a worker has point-to-point groups with at most")

    def __post_init__(self) -> None:
        for name in self.kv_transports:
            check_choice("kv_transports", name, TRANSPORTS)
        if "grpc" not in self.kv_transports:
            raise ConfigError("kv_transports", "must contain grpc, which the others fall back to")
        check_choice("kv_checksum", self.kv_checksum, CHECKSUMS)
        _check_positive("max_island_peers", self.max_island_peers)
        if self.island is not None and not NAMESPACE.fullmatch(self.island):
            raise ConfigError("island", f"must be 1 to 64 of A-Z a-z 0-9 _ . -, is {self.island!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """A prefill or decode worker process."""

    engine: EngineConfig = field(default_factory=EngineConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)
    process: ProcessConfig = field(default_factory=ProcessConfig)
    role: Role = field(
        default=Role.DECODE,
        metadata={
            "help": "decode: takes over from prefill workers; both: prefills everything by itself",
            "choices": (Role.DECODE, Role.BOTH),  # a prefill worker has a command of its own
        },
    )
    worker_id: str | None = setting(None, "name in the fleet, of one worker alone; default: role and address")
    host: str = setting("127.0.0.1", "address to listen on; 0.0.0.0: all of this machine's")
    port: int = setting(0, "port to listen on; 0: any free one")
    advertise: str | None = setting(
        None, "host:port that routers and other workers reach this one by; default: host and port"
    )
    lease_s: float = setting(10.0, LEASE_HELP)
    drain_timeout_s: float = setting(25.0, DRAIN_HELP)

    def __post_init__(self) -> None:
        _check_port("port", self.port)
        if self.drain_timeout_s < 0:
            raise ConfigError("drain_timeout_s", f"must be at least 0, is {self.drain_timeout_s}")
        if self.lease_s <= 0:
            raise ConfigError("lease_s", f"must be above 0, is {self.lease_s}")
        check_stride(self.index, self.engine)
        if self.advertise is not None:
            check_host_port("advertise", self.advertise)
        elif self.index.index_url is not None and is_wildcard(self.host):
            raise ConfigError(
                "advertise",
                f"must be given as host:port when host is {self.host!r}: that is no address to reach this worker by",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """A router process."""

    index: IndexConfig = field(default_factory=IndexConfig)
    process: ProcessConfig = field(default_factory=ProcessConfig)
    model: str = setting(
        "demo", "Hugging Face folder, .gguf file, hub id, or 'demo': read for its tokenizer and chat template"
    )
    served_model_name: str | None = setting(None, "name that callers use; default: the model's own")
    router_id: str | None = setting(
        None, "name in the fleet, of one router alone; default: made from its address and a random part"
    )
    host: str = setting("127.0.0.1", "address to listen on; 0.0.0.0: all of this machine's")
    grpc_port: int = setting(50051, "port of the gRPC API; 0: any free one")
    http_port: int = setting(8000, "port of the OpenAI HTTP API; 0: any free one")
    worker: tuple[str, ...] = setting((), "host:port of a worker that is not in the index; repeatable")
    min_workers: int = setting(
        1, "workers that must be there before the router says for the first time that it is ready"
    )
    policy: str = setting("prefix_aware", POLICY_HELP, choices=POLICIES)
    max_local_prefill_tokens: int = setting(256, LOCAL_PREFILL_HELP)
    max_num_requests: int = setting(1024, "requests at the same time at most; more are refused")
    max_attempts: int = setting(4, "times that one request is tried at most, when workers fail it")
    probe_interval_s: float = setting(5.0, PROBE_HELP)
    drain_timeout_s: float = setting(25.0, DRAIN_HELP)
    text_threads: int = setting(2, "threads that tokenise prompts and render chat templates")
    api_keys: str | None = setting(None, API_KEYS_HELP)

    def __post_init__(self) -> None:
        _check_port("grpc_port", self.grpc_port)
        _check_port("http_port", self.http_port)
        for name in ("min_workers", "max_num_requests", "max_attempts", "text_threads"):
            _check_positive(name, getattr(self, name))
        check_probe_interval(self.probe_interval_s)
        if self.max_local_prefill_tokens < 0:
            raise ConfigError("max_local_prefill_tokens", f"must be at least 0, is {self.max_local_prefill_tokens}")
        if self.drain_timeout_s < 0:
            raise ConfigError("drain_timeout_s", f"must be at least 0, is {self.drain_timeout_s:g}")
        if self.grpc_port and self.grpc_port == self.http_port:
            raise ConfigError("http_port", f"must differ from grpc_port, is {self.http_port}, too")
        check_choice("policy", self.policy, POLICIES)
        for address in self.worker:
            check_host_port("worker", address)
        if self.index.index_url is None and not self.worker:
            raise ConfigError(
                "index_url", "must be given to a router that lists no worker (--worker): it could never find one"
            )


def parse_bytes(field_name: str, text: str, *, least: int = 1) -> int:
    """Bytes of '512MiB', '4GB', '1073741824'. Raises ConfigError that names the field."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or match["unit"] not in _UNITS:
        raise ConfigError(
            field_name,
            f"must be bytes, or kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 4GB, is {text!r}",
        )
    size = int(float(match["number"]) * _UNITS[match["unit"]])
    if size < least:
        raise ConfigError(field_name, f"must be above 0, is {text!r}")
    return size


def check_stride(index: IndexConfig, engine: EngineConfig) -> None:
    """Points of the index lie at the ends of blocks. Raises ConfigError."""
    if index.index_stride % engine.block_size:
        raise ConfigError(
            "index_stride", f"must be a multiple of block_size {engine.block_size}, is {index.index_stride}"
        )


def check_probe_interval(probe_interval_s: float) -> None:
    """Raises ConfigError."""
    if probe_interval_s < 0:
        raise ConfigError("probe_interval_s", f"must be at least 0, is {probe_interval_s:g}")


def check_host_port(name: str, text: str) -> None:
    """Raises ConfigError that names the field."""
    try:
        check_address(text)
    except ValueError as error:
        raise ConfigError(name, str(error)) from None


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raises ConfigError that names the field and the choices."""
    if value not in choices:
        raise ConfigError(name, f"must be one of {', '.join(choices)}, is {value!r}")


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ConfigError(name, f"must be at least 1, is {value}")


def _check_port(name: str, value: int) -> None:
    if not 0 <= value <= 65535:
        raise ConfigError(name, f"must be a port from 0 to 65535, is {value}")
