"""Chooses where a leg runs: a prefill and a decode worker, or one worker that does both.

Gathers a snapshot (index depths, loads, own charges), and leaves the choice to a policy.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from common.config import Role
from common.errors import InvalidRequestError, UnavailableError
from common.request import WorkerId
from router.admission import AdmittedRequest
from router.fleet import Fleet
from router.policy import Candidate, Policy, RequestShape
from router.prefix_lookup import PrefixLookup
from router.worker_handle import WorkerHandle

MAX_CANDIDATES = 16


class PlanKind(StrEnum):
    SPLIT = "split"  # prefill on one worker, decode on another
    PREFILL_ONLY = "prefill_only"  # one token: nothing to hand over
    LOCAL = "local"  # one worker does both


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Workers best first. `prefill` is empty when local, `decode` when only one token is wanted.

    `num_uncached_tokens` is the work that the best prefill (or local) worker is charged for.
    """

    kind: PlanKind
    reason: str
    prefill: tuple[WorkerHandle, ...] = ()
    decode: tuple[WorkerHandle, ...] = ()
    num_uncached_tokens: int


class Planner:
    """Owned by the event loop."""

    def __init__(self, fleet: Fleet, policy: Policy, lookup: PrefixLookup, random_source: random.Random) -> None:
        self._fleet = fleet
        self._policy = policy
        self._lookup = lookup
        self._random = random_source
        self._sequence = itertools.count()

    async def plan(
        self, request: AdmittedRequest, num_tokens: int, num_new_tokens: int, excluded: frozenset[str]
    ) -> Plan | None:
        """A plan for `num_tokens` to compute and `num_new_tokens` to draw, or None when no worker is left.

        Raises InvalidRequestError when the request pins a worker that is not there, UnavailableError when the
        fleet has no worker for it at all.
        """
        hint = request.command.route
        exclude = excluded | frozenset(hint.exclude)
        prefill = self._pinned("route.prefill_worker", hint.prefill_worker, Role.PREFILL, exclude)
        decode = self._pinned("route.decode_worker", hint.decode_worker, Role.DECODE, exclude)
        depths = await self._lookup.depths(request.worker, request.point_keys)
        shape = RequestShape(num_tokens=num_tokens, sequence=next(self._sequence), draw=self._random.random())
        kind, reason = self._kind(prefill, decode, num_new_tokens, decode_only=hint.decode_only)
        if kind is PlanKind.LOCAL:
            ranked = self._rank_local(shape, decode, depths)
            return _plan(kind, reason, shape, depths, decode=ranked) if ranked else None
        ranked_prefill = self._rank_prefill(shape, prefill, depths)
        if kind is PlanKind.PREFILL_ONLY:
            return _plan(kind, reason, shape, depths, prefill=ranked_prefill) if ranked_prefill else None
        ranked_decode = self._rank_decode(shape, [handle for handle in decode if handle.can(Role.DECODE)], depths)
        if not ranked_prefill or not ranked_decode:
            return None
        return _plan(kind, reason, shape, depths, prefill=ranked_prefill, decode=ranked_decode)

    def _pinned(self, field: str, pinned: str | None, role: Role, exclude: frozenset[str]) -> list[WorkerHandle]:
        if pinned is None:
            return self._fleet.usable(role, exclude)
        handle = self._fleet.find(pinned)
        # A worker that does both hands nothing over: it can decode for others, but not prefill for them.
        fits = (Role.PREFILL,) if role is Role.PREFILL else (Role.DECODE, Role.BOTH)
        if handle is None or handle.info.role not in fits:
            known = ", ".join(worker.info.worker_id for worker in self._fleet.workers() if worker.info.role in fits)
            raise InvalidRequestError(field, f"no {role.value} worker {pinned!r} (there are: {known or 'none'})")
        return [handle] if handle.usable and pinned not in exclude else []

    def _kind(
        self,
        prefill: Sequence[WorkerHandle],
        decode: Sequence[WorkerHandle],
        num_new_tokens: int,
        *,
        decode_only: bool,
    ) -> tuple[PlanKind, str]:
        if decode_only:
            return PlanKind.LOCAL, "hint"
        if not any(handle.info.role is Role.PREFILL for handle in [*prefill, *self._fleet.usable(Role.PREFILL)]):
            # Better one worker that does both than no answer; counted under its reason.
            both = any(handle.info.role is Role.BOTH for handle in decode)
            return PlanKind.LOCAL, "role_both" if both else "no_prefill_worker"
        if num_new_tokens == 1:
            return PlanKind.PREFILL_ONLY, "one_token"
        return PlanKind.SPLIT, "default"

    def _rank_local(
        self, shape: RequestShape, handles: Sequence[WorkerHandle], depths: Mapping[WorkerId, int]
    ) -> list[WorkerHandle]:
        candidates = self._candidates(shape, handles, depths)
        return self._handles(self._policy.rank_prefill(shape, candidates))

    def _rank_prefill(
        self, shape: RequestShape, handles: Sequence[WorkerHandle], depths: Mapping[WorkerId, int]
    ) -> list[WorkerHandle]:
        split = [handle for handle in handles if handle.info.role is Role.PREFILL]
        return self._handles(self._policy.rank_prefill(shape, self._candidates(shape, split, depths)))

    def _rank_decode(
        self, shape: RequestShape, handles: Sequence[WorkerHandle], depths: Mapping[WorkerId, int]
    ) -> list[WorkerHandle]:
        split = [handle for handle in handles if handle.info.role is Role.DECODE]
        return self._handles(self._policy.rank_decode(shape, self._candidates(shape, split or handles, depths)))

    def _candidates(
        self, shape: RequestShape, handles: Sequence[WorkerHandle], depths: Mapping[WorkerId, int]
    ) -> list[Candidate]:
        """At most MAX_CANDIDATES: half the deepest holders of the prefix, half drawn by chance."""
        chosen = list(handles)
        if len(chosen) > MAX_CANDIDATES:
            chosen.sort(key=lambda handle: -depths.get(handle.info.worker_id, 0))
            deepest, others = chosen[: MAX_CANDIDATES // 2], chosen[MAX_CANDIDATES // 2 :]
            chosen = deepest + self._random.sample(others, MAX_CANDIDATES - len(deepest))
        return [_candidate(shape, handle, depths.get(handle.info.worker_id, 0)) for handle in chosen]

    def _handles(self, ranked: Sequence[Candidate]) -> list[WorkerHandle]:
        found = (self._fleet.find(candidate.worker_id) for candidate in ranked)
        return [handle for handle in found if handle is not None]

    def check_reachable(self, request: AdmittedRequest) -> None:
        """Says why waiting is in vain, if it is: no worker that may take the request is up.

        Raises InvalidRequestError where the request itself has excluded them, UnavailableError otherwise.
        """
        hint = request.command.route
        prefill = [handle for handle in self._fleet.usable(Role.PREFILL) if handle.info.role is Role.PREFILL]
        if prefill and not hint.decode_only and _all_excluded(prefill, hint.exclude):
            raise InvalidRequestError("route.exclude", "leaves no prefill worker")
        decode = [handle for handle in self._fleet.workers() if handle.can(Role.DECODE)]
        if decode and _all_excluded(decode, hint.exclude):
            raise InvalidRequestError("route.exclude", "leaves no decode worker")
        for field, pinned in (("prefill_worker", hint.prefill_worker), ("decode_worker", hint.decode_worker)):
            if pinned in hint.exclude:
                raise InvalidRequestError("route.exclude", f"holds {pinned!r}, which route.{field} asks for")
        if not self._fleet.usable(Role.DECODE, frozenset(hint.exclude)):
            raise UnavailableError("no decode worker is ready: start one, or wait until it has loaded its model")
        for pinned in (hint.prefill_worker, hint.decode_worker):
            handle = None if pinned is None else self._fleet.find(pinned)
            if handle is not None and not handle.usable:
                raise UnavailableError(f"worker {pinned}, which the request asks for, is not ready")


def _all_excluded(handles: Sequence[WorkerHandle], exclude: Sequence[str]) -> bool:
    return all(handle.info.worker_id in exclude for handle in handles)


def _plan(
    kind: PlanKind,
    reason: str,
    shape: RequestShape,
    depths: Mapping[WorkerId, int],
    prefill: Sequence[WorkerHandle] = (),
    decode: Sequence[WorkerHandle] = (),
) -> Plan:
    computing = (prefill or decode)[0]
    num_uncached = max(1, shape.num_tokens - depths.get(computing.info.worker_id, 0))
    return Plan(
        kind=kind, reason=reason, prefill=tuple(prefill), decode=tuple(decode), num_uncached_tokens=num_uncached
    )


def _candidate(shape: RequestShape, handle: WorkerHandle, depth: int) -> Candidate:
    load, block_size = handle.load, handle.info.block_size
    reported = load.num_running + load.num_waiting + load.num_reservations
    return Candidate(
        worker_id=handle.info.worker_id,
        num_cached_tokens=min(depth, shape.num_tokens),
        num_queued_tokens=max(load.num_waiting_tokens, handle.num_charged_tokens),
        num_requests=max(reported, handle.num_charged_requests),
        max_num_seqs=load.max_num_seqs,
        num_free_blocks=load.num_free_blocks,
        num_needed_blocks=-(-max(0, shape.num_tokens - depth) // block_size),
    )
