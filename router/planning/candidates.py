"""Turns accounts of workers into candidates: what this request would find, and cost, at each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from common.cost import StepTimes
from common.request import WorkerId
from router.planning.plan import PlanRequest
from router.planning.roster import Side
from router.planning.worker_account import WorkerAccount
from router.policy import Candidate, RequestShape

# From so many steps on, a worker's fitted times are its own.
STEADY_STEPS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One request's view of the fleet at one moment. `depths` and `held` are tokens from the prompt's start."""

    request: PlanRequest
    shape: RequestShape
    depths: Mapping[WorkerId, int]
    held: Mapping[WorkerId, int]
    exclude: frozenset[str]
    now_s: float

    def prefill_candidates(self, side: Side, accounts: Sequence[WorkerAccount]) -> list[Candidate]:
        """What computing the prompt would cost, alone or with decoding after it."""
        homes, sequence = self._homes(side), self.shape.sequence
        fleet_times = mean_times([account.step_times for account in accounts])
        found = []
        for account in accounts:
            info, load = account.info, account.load
            worker_id = info.worker_id
            _, num_cached, num_missing_blocks = self._counts(account)
            queue_s = account.queue_s(self.now_s)
            found.append(
                Candidate(
                    worker_id=worker_id,
                    num_cached_tokens=num_cached,
                    queue_s=queue_s,
                    prefill_s=self._prefill_s(steadied(account.step_times, fleet_times), account, num_cached),
                    fleet_prefill_s=self._prefill_s(fleet_times, account, num_cached),
                    work_s=account.done_s(self.now_s) + queue_s,
                    num_queued_tokens=account.num_queued_tokens,
                    num_requests=account.num_requests,
                    max_num_seqs=load.max_num_seqs,
                    num_free_blocks=load.num_blocks_to_grant,
                    num_needed_blocks=num_missing_blocks,
                    num_blocks=load.num_blocks,
                    num_cached_blocks=load.num_cached_blocks,
                    turn=side.turn_of(worker_id, sequence),
                    home_rank=homes.get(worker_id),
                )
            )
        return found

    def decode_candidates(self, side: Side, accounts: Sequence[WorkerAccount]) -> list[Candidate]:
        """What taking over the prompt's KV and decoding would cost; computing a tail, too, where a prefix is held."""
        num_tokens, sequence = self.request.num_tokens, self.shape.sequence
        fleet_times = mean_times([account.step_times for account in accounts])
        found = []
        for account in accounts:
            info, load, times = account.info, account.load, steadied(account.step_times, fleet_times)
            num_held, num_cached, num_missing_blocks = self._counts(account)
            missing_bytes = num_missing_blocks * info.num_bytes_per_block
            found.append(
                Candidate(
                    worker_id=info.worker_id,
                    num_cached_tokens=num_cached,
                    queue_s=account.queue_s(self.now_s) if num_held else 0.0,
                    prefill_s=self._prefill_s(times, account, num_cached) if num_held else 0.0,
                    transfer_s=missing_bytes / account.receive_bytes_per_s,
                    token_s=times.decode_step_s(load.num_running + 1, load.num_running_tokens + num_tokens),
                    crowding_s=times.decode_request_s + times.decode_kv_token_s * num_tokens,
                    num_requests=account.num_requests,
                    max_num_seqs=load.max_num_seqs,
                    num_free_blocks=load.num_blocks_to_grant,
                    num_needed_blocks=num_missing_blocks,
                    num_blocks=load.num_blocks,
                    num_cached_blocks=load.num_cached_blocks,
                    turn=side.turn_of(info.worker_id, sequence),
                )
            )
        return found

    def _homes(self, side: Side) -> Mapping[WorkerId, int]:
        return {worker_id: rank for rank, worker_id in enumerate(side.homes(self.request.prefix_key))}

    def _counts(self, account: WorkerAccount) -> tuple[int, int, int]:
        """Tokens that it holds, tokens that it would reuse, blocks that it lacks."""
        num_tokens = self.request.num_tokens
        num_held = min(self.depths.get(account.info.worker_id, 0), num_tokens)
        # At least one token is computed again: the next one is drawn from its row.
        return num_held, min(num_held, num_tokens - 1), -(-(num_tokens - num_held) // account.info.block_size)

    def _prefill_s(self, times: StepTimes, account: WorkerAccount, num_cached: int) -> float:
        return times.prefill_s(self.request.num_tokens - num_cached, num_cached, account.info.chunk_tokens)


def steadied(times: StepTimes, fleet: StepTimes) -> StepTimes:
    """A worker's own times, as far as steps stand behind them; for the rest it is taken to be like the others.

    A few steps while others started beside it would else make it look slow for good: whoever gets no work measures
    nothing. Times with no count of steps are given, not fitted, and stay.
    """
    if not 0 < times.num_steps < STEADY_STEPS:
        return times
    own = times.num_steps / STEADY_STEPS
    return replace(
        times,
        step_s=own * times.step_s + (1 - own) * fleet.step_s,
        prefill_token_s=own * times.prefill_token_s + (1 - own) * fleet.prefill_token_s,
        prefill_pair_s=own * times.prefill_pair_s + (1 - own) * fleet.prefill_pair_s,
        decode_request_s=own * times.decode_request_s + (1 - own) * fleet.decode_request_s,
        decode_kv_token_s=own * times.decode_kv_token_s + (1 - own) * fleet.decode_kv_token_s,
    )


def mean_times(times: Sequence[StepTimes]) -> StepTimes:
    """The speed of several workers together."""
    count = max(1, len(times))
    return StepTimes(
        step_s=sum([one.step_s for one in times]) / count,
        prefill_token_s=sum([one.prefill_token_s for one in times]) / count,
        prefill_pair_s=sum([one.prefill_pair_s for one in times]) / count,
        decode_request_s=sum([one.decode_request_s for one in times]) / count,
        decode_kv_token_s=sum([one.decode_kv_token_s for one in times]) / count,
    )
