"""What to start on one machine: how many processes of which role, and where the routers listen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from common.config import (
    API_KEYS_HELP,
    LEASE_HELP,
    LOCAL_PREFILL_HELP,
    POLICIES,
    POLICY_HELP,
    PROBE_HELP,
    EngineConfig,
    IndexConfig,
    ProcessConfig,
    Role,
    TransferConfig,
    check_choice,
    check_probe_interval,
    check_stride,
    setting,
)
from common.errors import ConfigError

MAX_PROCESSES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """The processes of `slipstream up`. Engine flags go to every worker, index flags to every process."""

    engine: EngineConfig = field(default_factory=EngineConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)
    process: ProcessConfig = field(default_factory=ProcessConfig)
    # For programs: other settings for the workers of one role. None: `engine`.
    prefill_engine: EngineConfig | None = None
    decode_engine: EngineConfig | None = None
    prefill: int = setting(1, "prefill workers to start")
    decode: int = setting(1, "decode workers to start; with --role both: workers that do both")
    routers: int = setting(1, "routers to start; the ports of each are one above those of the one before")
    role: Role | None = field(
        default=None,
        metadata={
            "help": "both: each decode worker prefills by itself, and no prefill workers are started",
            "choices": (Role.BOTH,),
        },
    )
    host: str = setting("127.0.0.1", "address that the routers listen on; 0.0.0.0: all of this machine's")
    grpc_port: int = setting(50051, "port of the gRPC API; 0: any free one")
    http_port: int = setting(8000, "port of the OpenAI HTTP API; 0: any free one")
    policy: str = setting("prefix_aware", POLICY_HELP, choices=POLICIES)
    max_local_prefill_tokens: int = setting(256, LOCAL_PREFILL_HELP)
    lease_s: float = setting(10.0, LEASE_HELP)
    probe_interval_s: float = setting(5.0, PROBE_HELP)
    router_drain_timeout_s: float = setting(5.0, "seconds after SIGTERM in which a router lets its answers end")
    start_timeout_s: float = setting(300.0, "seconds that all processes together may take until they are ready")
    api_keys: str | None = setting(None, API_KEYS_HELP)
    log_dir: str | None = setting(None, "folder of the processes' logs; default: a new temporary one")

    def __post_init__(self) -> None:
        for name, least in (("prefill", 0 if self.role is Role.BOTH else 1), ("decode", 1), ("routers", 1)):
            count = getattr(self, name)
            if not least <= count <= MAX_PROCESSES:
                raise ConfigError(name, f"must be from {least} to {MAX_PROCESSES}, is {count}")
        if self.role not in (None, Role.BOTH):
            raise ConfigError("role", f"must be both or absent, is {self.role}")
        for name in ("grpc_port", "http_port"):
            port = getattr(self, name)
            if port != 0 and not 1 <= port <= 65536 - self.routers:
                raise ConfigError(name, f"must be 0 or from 1 to {65536 - self.routers}, is {port}")
        if self.grpc_port and self.http_port and abs(self.grpc_port - self.http_port) < self.routers:
            raise ConfigError("http_port", f"meets the gRPC ports, which count up from {self.grpc_port}")
        check_choice("policy", self.policy, POLICIES)
        check_probe_interval(self.probe_interval_s)
        for engine in (self.engine, self.prefill_engine, self.decode_engine):
            if engine is not None:
                check_stride(self.index, engine)
        if self.start_timeout_s <= 0:
            raise ConfigError("start_timeout_s", f"must be above 0, is {self.start_timeout_s:g}")
        if self.router_drain_timeout_s < 0:
            raise ConfigError("router_drain_timeout_s", f"must be at least 0, is {self.router_drain_timeout_s:g}")
        if self.lease_s <= 0:
            raise ConfigError("lease_s", f"must be above 0, is {self.lease_s:g}")

    @property
    def router_ports(self) -> Iterator[tuple[str, int]]:
        """The setting and the number of each port of each router; 0: any free one."""
        for name, first in (("grpc_port", self.grpc_port), ("http_port", self.http_port)):
            yield from ((name, first and first + index) for index in range(self.routers))

    @property
    def num_workers(self) -> int:
        return self.decode if self.role is Role.BOTH else self.prefill + self.decode
