"""Least cost in seconds: the work that the prompt still needs here, weighed against the wait for it.

Work is weighed more than waiting: a second of prefill that another worker's cache would have saved delays all who
come after. How much more depends on how busy the fleet is, and docs/routing.md has the measurements behind it:

- while requests queue everywhere, each second saved shortens every queue: the weight grows with the wait;
- while the fleet is mostly idle, waits are short and copies of a prefix buy little: work is saved for its own sake;
- where a crowd waits for the only holders of a hot prefix, another copy serves all of them: its work weighs less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from router.policy.interface import Candidate, Ranked, Snapshot, ranked
from router.policy.ties import jitter

# Seconds; below any step, above nothing.
TIE_S = 1e-4
# Cost of a decode worker without room: it is asked last.
NO_ROOM_S = 1e6
# Holders of nearly as much of a prompt as the one that holds most.
LIKE_THE_LEAST = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixAware:
    """Affinity with a load term: without one, a prefix that all share sends everything to one worker.

    One second of prefill weighs 1 + affinity seconds of waiting. Affinity is `least_affinity`, plus
    `affinity_per_wait` for each typical prefill that even the shortest queue holds. Below a utilisation of
    `idle_below` it rises towards `idle_affinity`, but no request waits more than `idle_waits` typical prefills for
    that: else an idle fleet would queue up at the first worker that held a system prompt. `balance` weighs the prefill
    seconds given to a worker lately: too little to cost a hit, enough to share what is left to choose evenly; where
    queues are short and say little of who did how much, it grows by up to `idle_balance`.

    A crowd are the requests at each worker that holds most of the prompt, beyond `crowd_begins` and `crowd_ratio`
    times those of the worker with the fewest. What others would have to compute again weighs `1 + crowd_relief` times
    less for the first of them, and so on.
    """

    least_affinity: float = 1.0
    affinity_per_wait: float = 2.0
    most_affinity: float = 64.0
    idle_affinity: float = 64.0
    idle_below: float = 0.35
    idle_waits: float = 24.0
    balance: float = 0.012
    idle_balance: float = 0.2
    crowd_begins: int = 6
    crowd_ratio: float = 4.0
    crowd_relief: float = 2.0

    def rank_prefill(self, snapshot: Snapshot) -> list[Ranked]:
        affinity, idleness = self.affinity(snapshot), self._idleness(snapshot)
        idle_affinity = max(0.0, self.idle_affinity * idleness - affinity)
        balance = self.balance + self.idle_balance * idleness
        most_idle_s = self.idle_waits * snapshot.typical_prefill_s
        least_prefill_s = min((one.fleet_prefill_s for one in snapshot.candidates), default=0.0)
        least_work_s = min((one.work_s for one in snapshot.candidates), default=0.0)
        relief = 1 / (1 + self.crowd_relief * self._crowd(snapshot.candidates, least_prefill_s))

        def rank(candidate: Candidate) -> Ranked:
            extra_s = candidate.fleet_prefill_s - least_prefill_s
            terms = {
                "queue_s": candidate.queue_s,
                "prefill_s": candidate.prefill_s,
                # Weighed so much, a per cent of difference between two workers' fits would outweigh all else.
                "affinity_s": affinity * (least_prefill_s + relief * extra_s),
                "idle_s": relief * min(idle_affinity * extra_s, most_idle_s),
                "balance_s": balance * (candidate.work_s - least_work_s),
                "tie_s": TIE_S * jitter(snapshot.request, candidate),
            }
            return Ranked.of(candidate, terms)

        return ranked([rank(candidate) for candidate in snapshot.candidates])

    def rank_decode(self, snapshot: Snapshot) -> list[Ranked]:
        """What this request waits for each of its tokens, and what it makes the others wait."""

        def rank(candidate: Candidate) -> Ranked:
            num_tokens = snapshot.num_new_tokens
            terms = {
                "transfer_s": candidate.transfer_s,
                "decode_s": num_tokens * candidate.token_s,
                "crowding_s": num_tokens * candidate.crowding_s * candidate.num_requests,
                "fullness_s": _fullness(candidate) * num_tokens * candidate.token_s,
                "no_room_s": 0.0 if candidate.has_room else NO_ROOM_S,
                "tie_s": TIE_S * jitter(snapshot.request, candidate),
            }
            return Ranked.of(candidate, terms)

        return ranked([rank(candidate) for candidate in snapshot.candidates])

    def affinity(self, snapshot: Snapshot) -> float:
        """Seconds of waiting that one saved second of prefill is worth, beyond the one that this request saves."""
        shortest_s = _shortest_queue_s(snapshot.candidates)
        waits = shortest_s / snapshot.typical_prefill_s if snapshot.typical_prefill_s > 0 else 0.0
        return min(self.least_affinity + self.affinity_per_wait * waits, self.most_affinity)

    def _idleness(self, snapshot: Snapshot) -> float:
        """From 0, where the fleet is busy, to 1, where it has nothing to do."""
        return max(0.0, 1 - snapshot.utilization / self.idle_below)

    def _crowd(self, candidates: Sequence[Candidate], least_prefill_s: float) -> float:
        """Requests too many at the holders of the prompt's prefix, the least crowded of them."""
        fewest = min((one.num_requests for one in candidates), default=0)
        held_s = LIKE_THE_LEAST * least_prefill_s
        holders = [one.num_requests for one in candidates if one.fleet_prefill_s <= held_s]
        return max(0.0, min(holders, default=0) - self.crowd_ratio * fewest - self.crowd_begins)


def _shortest_queue_s(candidates: Sequence[Candidate]) -> float:
    return min((one.queue_s for one in candidates), default=0.0)


def _fullness(candidate: Candidate) -> float:
    """Share of the pool that would be in use: a full pool preempts."""
    num_left = candidate.num_free_blocks - candidate.num_needed_blocks
    return 1 - max(0, num_left) / max(1, candidate.num_blocks)
