"""The fleet as a router sees it, in plain Python."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLoad:
    """Fields as LoadReport in protos/worker.proto."""

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
    num_swapped: int
    num_host_blocks: int
    num_free_host_blocks: int
    num_swap_outs: int
    swapped_out_blocks: int
    swapped_in_blocks: int
    sent_bytes: int
    received_bytes: int
    sent_blocks: int
    received_blocks: int
    num_generated_tokens: int
    num_prefilled_tokens: int
    max_num_seqs: int

    @property
    def num_used_blocks(self) -> int:
        return self.num_blocks - self.num_free_blocks

    @property
    def hit_rate(self) -> float | None:
        """Share of the looked-up tokens that the prefix cache held; None before the first look-up."""
        return self.prefix_hit_tokens / self.prefix_query_tokens if self.prefix_query_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    worker_id: str
    incarnation: int
    role: str  # prefill, decode, both
    state: str  # starting, ready, draining; told by a router, too: not_ready, removed, dead
    model: str
    address: str  # host:port
    reachable: bool
    load: WorkerLoad
    backend: str
    uptime_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterStatus:
    router_id: str
    ready: bool
    index_degraded: bool
    num_active_requests: int
    uptime_s: float
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedWorker:
    """A worker that the router found but gives no work."""

    worker_id: str
    address: str  # host:port; empty: its registration can't be read
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    workers: tuple[WorkerStatus, ...]
    router: RouterStatus | None
    refused_workers: tuple[RefusedWorker, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrityReport:
    """Sums over the workers asked. Fields as CheckIntegrityResponse in protos/admin.proto."""

    num_blocks: int
    num_free_blocks: int
    num_used_blocks: int
    num_quarantined_blocks: int
    num_used_host_blocks: int
    num_reservations: int
    num_requests: int
