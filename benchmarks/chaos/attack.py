"""Carries a strike out on its victim, and mends what it broke."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from benchmarks.chaos.cell import Fault, Target
from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.process import Process
from benchmarks.chaos.proxy import Link
from benchmarks.chaos.stream import Stream
from benchmarks.chaos.victim import Victim

# Beyond the lease: what was to happen at its end has happened.
AFTER_LEASE_S = 2.5
SLOW_BYTES_PER_S = 50_000
# Answers are short: at the rate of requests none would be seen to be late.
SLOW_ANSWER_BYTES_PER_S = 100
SLOW_S = 3.0
INDEX_AWAY_S = 1.0
# A worker finishes what runs for up to 10 s, and a hand-over for 5 s more.
DRAIN_TIMEOUT_S = 20.0


class Attack:
    """`strike` returns at once, with nothing in between; `finish` when a process that must die is dead."""

    def __init__(self, victim: Victim, fleet: Fleet, streams: Sequence[Stream]) -> None:
        self._victim = victim
        self._fleet = fleet
        self._streams = streams
        self.faults: list[str] = []

    def strike(self) -> None:
        match self._victim.strike.fault:
            case Fault.KILL | Fault.FREEZE if self._victim.process is not None:
                # A process to be killed stands still first, so that others can be asked what it had come to.
                self._process.freeze()
            case Fault.KILL:
                self._fleet.kill_index()
            case Fault.CUT:
                for link in self._links():
                    link.cut()
            case Fault.SLOW:
                for link in self._links():
                    link.requests.throttle(SLOW_BYTES_PER_S)
                    link.responses.throttle(SLOW_ANSWER_BYTES_PER_S)
            case Fault.DRAIN:
                self._process.drain()
            case Fault.CANCEL:
                for stream in self._streams:
                    stream.cancel()

    def finish(self, *, lose_sent: bool) -> None:
        """`lose_sent`: what a killed process has sent, and is on its way, never arrives."""
        if self._victim.strike.fault is Fault.KILL and self._victim.process is not None:
            self._process.kill()
            if lose_sent:
                for link in self._fleet.links_of(self._victim.process):
                    link.drop()

    def keeps_closed(self, link: Link) -> bool:
        """Whether the strike itself holds a link, until `mend`."""
        return self._victim.strike.fault in (Fault.CUT, Fault.SLOW) and link in self._links()

    async def mend(self) -> None:
        """After a while. Everything is there again afterwards; what should not have been is in `faults`."""
        lease_s = self._fleet.spec.lease_s
        match self._victim.strike.fault:
            case Fault.KILL if self._victim.process is not None:
                await self._fleet.restart(self._victim.process)
            case Fault.KILL:
                await asyncio.sleep(INDEX_AWAY_S)
                await self._fleet.restart_index()
            case Fault.FREEZE:
                await asyncio.sleep(lease_s + AFTER_LEASE_S)
                self._process.thaw()
            case Fault.CUT | Fault.SLOW:
                is_cut = self._victim.strike.fault is Fault.CUT
                await asyncio.sleep(lease_s + AFTER_LEASE_S if is_cut else SLOW_S)
                for link in self._links():
                    link.open()
        for name in self._fleet.workers:
            if self._fleet.processes[name].draining:
                await self._await_drained(self._fleet.processes[name])

    @property
    def silence_bound_s(self) -> float | None:
        """The longest time without a message that a caller may see; None: it is gone."""
        fault = self._victim.strike.fault
        if fault is Fault.CANCEL:
            return None
        return 2.0 if fault in (Fault.KILL, Fault.DRAIN) else self._fleet.spec.lease_s + 2.0

    @property
    def _process(self) -> Process:
        assert self._victim.process is not None
        return self._fleet.processes[self._victim.process]

    def _links(self) -> list[Link]:
        victim = self._victim
        if victim.strike.target is Target.LINK:
            assert victim.prefill_worker is not None and victim.decode_worker is not None
            return [self._fleet.proxies[victim.decode_worker].link(victim.prefill_worker)]
        assert victim.process is not None
        return list(self._fleet.links_of(victim.process))

    async def _await_drained(self, process: Process) -> None:
        if not await process.wait_end(DRAIN_TIMEOUT_S):
            held = "; ".join(await self._fleet.held(process.name)) or "and holds nothing"
            self.faults.append(f"{process.name} has not drained after {DRAIN_TIMEOUT_S:g} s: {held}")
            process.kill()
        elif process.exit_code != 0:
            self.faults.append(f"{process.name} drained with exit code {process.exit_code}")
        await self._fleet.restart(process.name)
