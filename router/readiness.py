"""Ready means that a real answer came through the whole path: prefill, transfer, decode."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from common.config import Role
from common.errors import SlipstreamError
from common.request import SamplingParams
from router.fleet import Fleet
from router.generation import GenerateCommand, Generator, TokenPrompt

logger = logging.getLogger(__name__)

INTERVAL_S = 0.25
CANARY_DEADLINE_S = 30.0
# Two tokens: with one, nothing would be handed over to decode.
CANARY_TOKENS = 2


Announce = Callable[[bool], Awaitable[None]]


class Readiness:
    """Probes until an answer came, then watches that workers remain. Owned by the event loop.

    `announce` is called with each change of `ready`, which is false at first.
    """

    def __init__(self, generator: Generator, fleet: Fleet, min_workers: int, announce: Announce) -> None:
        self._generator = generator
        self._fleet = fleet
        self._min_workers = min_workers
        self._announce = announce
        self.ready = False
        self.reason = "no worker has registered yet"
        self._draining = False

    def why_not(self) -> str | None:
        """Why the service is not ready; None when it is."""
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
            elif not self.ready:
                await self._probe()
            await asyncio.sleep(INTERVAL_S)

    async def _set_ready(self, ready: bool, reason: str) -> None:
        if self._draining:
            ready, reason = False, "draining"
        self.reason = reason
        if ready != self.ready:
            self.ready = ready
            await self._announce(ready)

    def _num_up(self) -> int:
        return sum(handle.usable for handle in self._fleet.workers())

    async def _probe(self) -> None:
        command = GenerateCommand(
            request_id=f"canary-{secrets.token_hex(8)}",
            prompt=TokenPrompt(token_ids=[0]),
            sampling=SamplingParams(max_tokens=CANARY_TOKENS, temperature=0.0, ignore_eos=True),
            deadline_s=CANARY_DEADLINE_S,
            canary=True,
        )
        try:
            async for _ in self._generator.generate(command):
                pass
        except SlipstreamError as error:
            self.reason = f"the probe failed: {error}"
            logger.info("not ready: %s", error)
        else:
            await self._set_ready(True, "")
            logger.info("ready: an answer came through the whole path")
