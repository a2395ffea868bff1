"""A router of the simulation: books and a planner of its own, as in a real one."""

from __future__ import annotations

import random
import struct

from router.planning.plan import Plan, PlanRequest
from router.planning.planner import Planner, PlannerSettings
from router.planning.roster import Roster
from router.planning.speculation import speculation_s
from router.planning.worker_account import WorkerAccount
from router.policy import Policy
from router.worker_info import WorkerInfo, WorkerLoad
from slipstream.simulator.decode_worker import SimulatedDecodeWorker
from slipstream.simulator.job import Job
from slipstream.simulator.prefill_worker import SimulatedPrefillWorker
from slipstream.simulator.prefix_store import GuessedHolders, PrefixStore
from slipstream.simulator.warm_up import PRIOR

# Of a prompt, for consistent hashing. One would be the first system prompt's, or, where all share it, everybody's.
NUM_HASHED_BLOCKS = 2

Worker = SimulatedPrefillWorker | SimulatedDecodeWorker


class SimulatedRouter:
    """Sees the fleet only through reports and the index."""

    def __init__(self, index: int, policy: Policy, store: PrefixStore, draw: random.Random) -> None:
        self.index = index
        self._roster = Roster()
        self.planner = Planner(self._roster, policy, draw, PlannerSettings())
        self._store = store
        self._guesses = GuessedHolders()

    def admit(self, info: WorkerInfo, now_s: float) -> None:
        """A worker has come, or come back as another life."""
        work_s = self._roster.mean_work_s(info.role, now_s) if now_s > 0 else 0.0
        account = WorkerAccount(info, prior=PRIOR, work_s=work_s, now_s=now_s)
        account.available = True
        self._roster.update(account)

    def lose(self, worker: SimulatedPrefillWorker) -> None:
        """A worker's stream has ended."""
        account = self._roster.find(worker.info.worker_id)
        if account is not None:
            account.available = False
            account.reset()
            self._roster.update(account)

    def take_report(self, worker: Worker, load: WorkerLoad, now_s: float) -> None:
        """A load report has arrived."""
        account = self._roster.find(worker.info.worker_id)
        if account is not None and account.info.incarnation == worker.info.incarnation:
            account.take_report(load, now_s)

    def plan(self, job: Job, now_s: float) -> Plan | None:
        """None when no worker is there."""
        request = job.request
        hashed = request.block_ids[:NUM_HASHED_BLOCKS]
        return self.planner.plan(
            PlanRequest(
                num_tokens=request.num_tokens,
                num_new_tokens=request.num_new_tokens,
                prefix_key=struct.pack(f"<{len(hashed)}q", *hashed),
            ),
            self._store.depths(request.block_ids, self._guesses),
            now_s,
        )

    def send(self, job: Job, plan: Plan, worker: SimulatedPrefillWorker) -> None:
        """Books the prefill leg: the charge, and the guess that the worker will hold the prompt."""
        candidate = plan.computing.candidate
        job.num_expected_tokens = candidate.num_cached_tokens
        account = self._roster.find(worker.info.worker_id)
        assert account is not None
        job.account = account
        job.charge = account.charge(candidate.prefill_s, job.request.num_tokens - candidate.num_cached_tokens)
        account.submitted(job.charge)
        job.guess_slot = worker.slot
        job.num_guessed_from = candidate.num_cached_tokens // worker.info.block_size
        keys = job.request.block_ids[job.num_guessed_from :]
        self._guesses.add(worker.slot, keys)
        self._store.guess(worker.slot, keys, speculation_s(plan))

    def settle(self, job: Job) -> None:
        """The first token is here, or the attempt is lost. Idempotent."""
        if job.account is not None and job.charge is not None:
            job.account.discharge(job.charge)
        if job.guess_slot is not None:
            self._guesses.remove(job.guess_slot, job.request.block_ids[job.num_guessed_from :])
        job.account = job.charge = job.guess_slot = None

    def note_bandwidth(self, worker: SimulatedDecodeWorker, bytes_per_s: float) -> None:
        """A transfer has been seen."""
        account = self._roster.find(worker.info.worker_id)
        if account is not None:
            account.receive_bytes_per_s = bytes_per_s
