"""One caller that goes away in one stage, and what it took until nothing of its request was left."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from benchmarks.client_gone.caller import WAYS
from benchmarks.client_gone.stage import Census, Fleet, Stage, is_in

STAGE_TIMEOUT_S = 30.0
FREE_TIMEOUT_S = 10.0
# A stage may be over before the caller is gone; then it is tried again.
MAX_TRIES = 20
POLL_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """`freed_s` from leaving until the books are as before; the steps that worked for nobody meanwhile, at most."""

    stage: Stage
    way: str
    freed_s: float
    num_prefill_steps: int
    num_decode_steps: int


class StageMissedError(Exception):
    """The request was never seen in the stage."""


def depart(fleet: Fleet, stage: Stage, way: str, *, prompt_tokens: int, chunk_tokens: int) -> Departure:
    """Raises StageMissedError, and AssertionError when something is left for good."""
    with fleet.busy(stage, prompt_tokens):
        for _ in range(MAX_TRIES):
            departure = _try_depart(fleet, stage, way, prompt_tokens, chunk_tokens)
            if departure is not None:
                break
        else:
            raise StageMissedError(f"{stage}, {way}")
    deadline_s = time.monotonic() + FREE_TIMEOUT_S
    while (num_used := fleet.num_used_blocks()) or fleet.census().num_at_router:
        time.sleep(POLL_S)
        assert time.monotonic() < deadline_s, f"{num_used} blocks are not back after {FREE_TIMEOUT_S:g} s"
    return departure


def _try_depart(fleet: Fleet, stage: Stage, way: str, prompt_tokens: int, chunk_tokens: int) -> Departure | None:
    before = fleet.census()
    # Another prompt each time: nothing of it is cached.
    caller = WAYS[way](fleet.cluster, [random.randrange(300, 1000) for _ in range(prompt_tokens)])
    if (at_leaving := _wait_for(fleet, stage, before)) is None:
        caller.leave()
        _wait_free(fleet, before)
        return None
    left_s = time.monotonic()
    caller.leave()
    after = _wait_free(fleet, before)
    # A busy fleet's own work is not told apart: those stages have no steps of the caller's to count.
    own = stage not in (Stage.QUEUED, Stage.RESERVED)
    num_prefilled = after.prefill.num_prefilled_tokens - at_leaving.prefill.num_prefilled_tokens
    num_decoded = after.decode.num_generated_tokens - at_leaving.decode.num_generated_tokens
    return Departure(
        stage=stage,
        way=way,
        freed_s=time.monotonic() - left_s,
        num_prefill_steps=-(-num_prefilled // chunk_tokens) if own else 0,
        num_decode_steps=num_decoded if own else 0,
    )


def _wait_for(fleet: Fleet, stage: Stage, before: Census) -> Census | None:
    """The census that shows the stage; None when the request went past it unseen."""
    deadline_s = time.monotonic() + STAGE_TIMEOUT_S
    seen = False
    while time.monotonic() < deadline_s:
        now = fleet.census()
        if is_in(stage, before, now):
            return now
        seen = seen or now.num_at_router > before.num_at_router
        if seen and is_in(Stage.DECODING, before, now):
            return None
        time.sleep(POLL_S)
    return None


def _wait_free(fleet: Fleet, before: Census) -> Census:
    deadline_s = time.monotonic() + FREE_TIMEOUT_S
    while (now := fleet.census()).holds_more_than(before):
        assert time.monotonic() < deadline_s, f"{now.num_legs} legs after {FREE_TIMEOUT_S:g} s, not {before.num_legs}"
        time.sleep(POLL_S)
    return now
