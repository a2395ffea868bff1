"""Ready means that real answers come through the whole path: prefill, transfer, decode. Asked again all the time."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from common.config import Role
from common.errors import OverloadedError, SlipstreamError
from common.request import SamplingParams
from router.fleet import Fleet
from router.generation import GenerateCommand, Generator, RouteHint, TokenPrompt, events_of
from router.worker_handle import WorkerHandle

logger = logging.getLogger(__name__)

INTERVAL_S = 0.25
PROBE_DEADLINE_S = 15.0
# Pairs, where there are so many, that must fail in a row before a service that was ready is not ready any more.
MAX_PAIRS = 3
# Two tokens: with one, nothing would be handed over to decode.
PROBE_TOKENS = 2
# In front of every request that waits: a probe asks whether answers come, not how busy the fleet is.
PROBE_PRIORITY = -(2**31)


Announce = Callable[[bool], Awaitable[None]]


class Pair(NamedTuple):
    """Who a probe goes to. `prefill` is None where decode workers prefill by themselves."""

    prefill: WorkerHandle | None
    decode: WorkerHandle

    @property
    def workers(self) -> list[WorkerHandle]:
        return [self.decode] if self.prefill is None else [self.prefill, self.decode]


class Readiness:
    """Probes one pair of workers after the other, until one answers and from then on. Owned by the event loop.

    `announce` is called with each change of `ready`, which is false at first. A worker learns nothing of it; its handle
    keeps whether it answered, and requests go elsewhere until it does, where there is anyone else. With
    `probe_interval_s` 0 a router that is ready probes no more.
    """

    def __init__(
        self,
        generator: Generator,
        fleet: Fleet,
        min_workers: int,
        announce: Announce,
        *,
        probe_interval_s: float,
        probe_deadline_s: float = PROBE_DEADLINE_S,
    ) -> None:
        self._generator = generator
        self._fleet = fleet
        self._min_workers = min_workers
        self._announce = announce
        self._probe_interval_s = probe_interval_s
        self._probe_deadline_s = probe_deadline_s
        self._num_probes = 0
        self._next_probe_s = 0.0  # monotonic
        self.ready = False
        self.reason = "no worker has registered yet"
        self._draining = False

    def why_not(self) -> str | None:
        """Why the service is not ready; None when it is."""
        if self._draining:
            return "draining"
        return None if self.ready else self.reason

    async def drain(self) -> None:
        """Not ready from now on."""
        self._draining = True
        await self._set_ready(False, "draining")

    async def run(self) -> None:
        """Until cancelled, or draining."""
        while (num_up := self._num_up()) < self._min_workers:
            self.reason = f"{num_up} of {self._min_workers} workers are up"
            await asyncio.sleep(INTERVAL_S)
        while not self._draining:
            if not self._fleet.usable(Role.DECODE):
                await self._set_ready(False, "no worker that decodes is up")
            elif not self.ready or (self._probe_interval_s and time.monotonic() >= self._next_probe_s):
                await self._probe_pairs()
                self._next_probe_s = time.monotonic() + self._probe_interval_s
            await asyncio.sleep(INTERVAL_S)

    async def _set_ready(self, ready: bool, reason: str) -> None:
        ready = ready and not self._draining
        self.reason = reason
        if ready != self.ready:
            self.ready = ready
            logger.log(logging.INFO if ready else logging.WARNING, "ready" if ready else f"not ready: {reason}")
            await self._announce(ready)

    def _num_up(self) -> int:
        return sum(handle.usable for handle in self._fleet.workers())

    async def _probe_pairs(self) -> None:
        """One answer is enough; of a fleet that was ready several pairs are asked before it is not."""
        reason = ""
        for pair in self._next_pairs(MAX_PAIRS if self.ready else 1):
            failure = await self._probe(pair)
            if failure is None:
                if not self._probe_interval_s:
                    self._trust_all()
                await self._set_ready(True, "")
                return
            reason = reason or failure
        await self._set_ready(False, f"the probe failed: {reason}")

    def _trust_all(self) -> None:
        """Nobody will be asked again: who gave no answer while the fleet started may give them now."""
        for handle in self._fleet.workers():
            handle.answers = True

    def _next_pairs(self, max_pairs: int) -> list[Pair]:
        """Each worker in turn, and in time each with each."""
        decode = self._fleet.usable(Role.DECODE)
        prefill = [handle for handle in self._fleet.usable(Role.PREFILL) if handle.info.role is Role.PREFILL]
        num_pairs = min(max_pairs, max(1, len(prefill)) * len(decode))
        numbers = range(self._num_probes, self._num_probes + num_pairs)
        self._num_probes += num_pairs
        if not prefill:
            return [Pair(None, decode[number % len(decode)]) for number in numbers]
        # Both sides go round at once; where that never brings some together, one is shifted after each common round.
        round_length, num_shifts = math.lcm(len(prefill), len(decode)), math.gcd(len(prefill), len(decode))
        return [
            Pair(
                prefill[number % len(prefill)],
                decode[(number + number // round_length % num_shifts) % len(decode)],
            )
            for number in numbers
        ]

    async def _probe(self, pair: Pair) -> str | None:
        """Why no answer came; None when one did, or when the pair was too busy with others to give it."""
        before = [handle.load_report.num_generated_tokens for handle in pair.workers]
        losses = [handle.num_losses for handle in pair.workers]
        try:
            async for _ in events_of(self._generator, self._command(pair)):
                pass
        except SlipstreamError as error:
            works = [
                handle.load_report.num_generated_tokens > earlier
                for handle, earlier in zip(pair.workers, before, strict=True)
            ]
            was_lost = losses != [handle.num_losses for handle in pair.workers]
            if was_lost or not all(handle.usable for handle in pair.workers):
                return str(error)  # one is gone, or was meanwhile: that says nothing of the other
            is_full = isinstance(error, OverloadedError)  # the router, by its own limit, or a worker: not broken
            for handle, at_work in zip(pair.workers, works, strict=True):
                handle.answers = at_work or (is_full and handle.answers)
            return None if (is_full and self.ready) or all(works) else str(error)
        for handle in pair.workers:
            handle.answers = True
        return None

    def _command(self, pair: Pair) -> GenerateCommand:
        return GenerateCommand(
            request_id=f"canary-{secrets.token_hex(8)}",
            prompt=TokenPrompt(token_ids=[0]),
            sampling=SamplingParams(max_tokens=PROBE_TOKENS, temperature=0.0, ignore_eos=True),
            priority=PROBE_PRIORITY,
            deadline_s=self._probe_deadline_s,
            route=RouteHint(
                prefill_worker=None if pair.prefill is None else pair.prefill.info.worker_id,
                decode_worker=pair.decode.info.worker_id,
            ),
            canary=True,
        )
