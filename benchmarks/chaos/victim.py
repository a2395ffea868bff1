"""Who is struck, and which requests were in which stage with it when it happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.chaos.cell import Fault, Stage, Strike, Target
from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.observer import Look, Seen
from protos import admin_pb2 as pb

# What the router must say right after the strike of a request that was in the stage right before it.
_ROUTER_STAGES = {
    Stage.QUEUED: {pb.REQUEST_STAGE_QUEUED},
    Stage.OFFERED: {pb.REQUEST_STAGE_RESERVING},
    Stage.CREDITED: {pb.REQUEST_STAGE_RESERVING, pb.REQUEST_STAGE_PREFILLING},
    Stage.MAPPED: {pb.REQUEST_STAGE_PREFILLING, pb.REQUEST_STAGE_HANDING_OVER},
    Stage.WAITING: {pb.REQUEST_STAGE_PREFILLING},
    Stage.PREFILLING: {pb.REQUEST_STAGE_PREFILLING},
    Stage.SENDING: {pb.REQUEST_STAGE_PREFILLING, pb.REQUEST_STAGE_HANDING_OVER},
    Stage.COMMITTED: {pb.REQUEST_STAGE_DECODING},
    Stage.EARLY: {pb.REQUEST_STAGE_DECODING},
    Stage.LATE: {pb.REQUEST_STAGE_DECODING},
    Stage.DRAINING: {pb.REQUEST_STAGE_PREFILLING, pb.REQUEST_STAGE_HANDING_OVER, pb.REQUEST_STAGE_DECODING},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """Names of processes; both for a link, none for the index and for callers."""

    strike: Strike
    prefill_worker: str | None = None
    decode_worker: str | None = None
    router: str | None = None

    @property
    def process(self) -> str | None:
        """The one that is struck; None when it is no process of the fleet."""
        if self.strike.target is Target.LINK:
            return None
        return self.prefill_worker or self.decode_worker or self.router

    @property
    def stops(self) -> bool:
        """Whether it can't be asked right after the strike."""
        return self.strike.fault in (Fault.KILL, Fault.FREEZE) and self.process is not None

    def __str__(self) -> str:
        names = [name for name in (self.prefill_worker, self.decode_worker, self.router) if name]
        return f"{self.strike.fault} {'-'.join(names) or self.strike.target}"

    def concerns(self, seen: Seen) -> bool:
        """Whether the request depends on it. One in the queue depends on all workers alike."""
        if self.router is not None:
            return seen.router == self.router
        if Stage.QUEUED in seen.stages:
            return True
        return (self.prefill_worker in (None, seen.prefill_worker)) and (
            self.decode_worker in (None, seen.decode_worker)
        )

    def stages(self, look: Look) -> set[Stage]:
        """In which it has a request."""
        return {stage for seen in look.seen.values() if self.concerns(seen) for stage in seen.stages}


def candidates(strike: Strike, fleet: Fleet) -> Iterator[Victim]:
    match strike.target:
        case Target.PREFILL:
            yield from (Victim(strike=strike, prefill_worker=name) for name in fleet.prefill_workers)
        case Target.DECODE:
            yield from (Victim(strike=strike, decode_worker=name) for name in fleet.decode_workers)
        case Target.LINK:
            for name in fleet.prefill_workers:
                yield from (
                    Victim(strike=strike, prefill_worker=name, decode_worker=sink) for sink in fleet.decode_workers
                )
        case Target.ROUTER:
            yield from (Victim(strike=strike, router=name) for name in fleet.routers)
        case Target.INDEX | Target.CLIENT:
            yield Victim(strike=strike)


def struck_stages(victim: Victim, before: Look, after: Look) -> dict[Stage, list[str]]:
    """The stages that were struck for certain, with the requests that were in them.

    A request counts when it was in the stage right before the strike and had not left it right after. A process that
    stands still can't be asked: of what it holds, the others must know nothing newer.
    """
    struck: dict[Stage, list[str]] = {}
    for request_id, seen in before.seen.items():
        later = after.seen.get(request_id)
        if later is None or not victim.concerns(seen):
            continue
        for stage in seen.stages:
            if _stayed(stage, request_id, victim, before, after):
                struck.setdefault(stage, []).append(request_id)
    return struck


def _stayed(stage: Stage, request_id: str, victim: Victim, before: Look, after: Look) -> bool:
    seen, later = before.seen[request_id], after.seen[request_id]
    if stage in later.stages:
        return True
    if stage is Stage.WAITING and victim.strike.fault is Fault.DRAIN:
        return _was_handed_back(seen, later)
    if not victim.stops or not _is_told_by(stage, victim):
        return False
    if victim.router is not None:
        return True
    if later.router_stage not in _ROUTER_STAGES[stage] or later.attempt != seen.attempt:
        return False
    if stage is Stage.WAITING:
        # Those before it in the queue had not drawn their first tokens, so its own turn had not come.
        ahead = before.prefilling.get(victim.prefill_worker or "", frozenset())
        return any(after.seen[one].router_stage == pb.REQUEST_STAGE_PREFILLING for one in ahead if one in after.seen)
    return True


def _was_handed_back(seen: Seen, later: Seen) -> bool:
    """Of a request that waited at a worker which drains now. The drain itself ends that stage: the worker has it no
    more in its queue, and has not computed it; its router may know that already."""
    if later.attempt > seen.attempt or later.router_stage == pb.REQUEST_STAGE_QUEUED:
        return True
    dropped = Stage.DRAINING in later.stages and Stage.PREFILLING not in later.stages
    return dropped and later.router_stage == pb.REQUEST_STAGE_PREFILLING


def _is_told_by(stage: Stage, victim: Victim) -> bool:
    """Whether the stage is known from the victim itself, so that it can't be asked again."""
    if victim.router is not None:
        return stage in (Stage.QUEUED, Stage.EARLY, Stage.LATE)
    if victim.prefill_worker is not None:
        return stage in (Stage.WAITING, Stage.PREFILLING, Stage.COMMITTED, Stage.DRAINING)
    return stage in (
        Stage.OFFERED,
        Stage.CREDITED,
        Stage.MAPPED,
        Stage.SENDING,
        Stage.COMMITTED,
        Stage.DRAINING,
    )
