"""Accounts and rosters of workers that don't run."""

from __future__ import annotations

import dataclasses
from typing import Any

from common.config import Role
from common.cost import StepTimes
from router.planning.roster import Roster
from router.planning.worker_account import WorkerAccount
from router.worker_info import WorkerLoad
from tests.support.router import worker_info

# A prompt of 1,000 tokens takes 0.1 s and a step 10 ms; attention is free.
TIMES = StepTimes(
    step_s=0.01,
    prefill_token_s=1e-4,
    prefill_pair_s=0.0,
    decode_request_s=1e-4,
    decode_kv_token_s=1e-8,
    num_steps=100,
)
IDLE = WorkerLoad(
    num_blocks=1000, num_free_blocks=1000, max_num_seqs=64, num_prefilled_tokens=1_000_000, step_times=TIMES
)


def account(worker_id: str, role: Role = Role.PREFILL, **load: Any) -> WorkerAccount:
    """A worker that is there and has reported once, at 0 s."""
    made = WorkerAccount(worker_info(worker_id, role), prior=TIMES)
    made.available = True
    made.take_report(dataclasses.replace(IDLE, **load), 0.0)
    return made


def roster(*accounts: WorkerAccount) -> Roster:
    made = Roster()
    for one in accounts:
        made.update(one)
    return made
