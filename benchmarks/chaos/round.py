"""One round: requests are brought to their stages, a fault strikes, and everything must come out right."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.chaos.asker import Asker
from benchmarks.chaos.attack import Attack
from benchmarks.chaos.cell import Fault, Stage, Strike
from benchmarks.chaos.core_share import CoreShare
from benchmarks.chaos.coverage import Coverage
from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.judge import Expectation, Judgement, judge
from benchmarks.chaos.observer import Look, Observer
from benchmarks.chaos.placement import Placement
from benchmarks.chaos.schedule import Setting, Turn
from benchmarks.chaos.stream import DEADLINE_MS, Stream
from benchmarks.chaos.victim import Victim, candidates, struck_stages

# A request ends by its deadline, whatever happens.
END_TIMEOUT_S = DEADLINE_MS / 1000 + 5
STUCK_AFTER_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """`left` is what the workers held after everything had ended, `given_back_s` how long it took from then on."""

    victim: Victim
    judgements: Mapping[str, Judgement]
    struck: Mapping[Stage, list[str]]
    faults: tuple[str, ...]
    left: tuple[str, ...]
    given_back_s: float
    others_share: float  # of the machine, after the strike
    elapsed_s: float

    @property
    def longest_silence_s(self) -> float:
        return max((one.silence_s for one in self.judgements.values()), default=0.0)


class Round:
    """Knows one fleet, and what has been covered on it so far."""

    def __init__(self, fleet: Fleet, asker: Asker, observer: Observer, coverage: Coverage) -> None:
        self._fleet = fleet
        self._asker = asker
        self._observer = observer
        self._coverage = coverage

    async def run(self, turn: Turn, source: random.Random) -> RoundResult:
        """Raises UnavailableError when the fleet does not come back whole."""
        started_s = time.monotonic()
        strike = turn.strike
        placement = Placement(self._fleet, self._asker, self._observer, turn.number)
        try:
            await self._place(turn, placement)
            result = await self._strike(strike, placement, source, started_s)
        finally:
            placement.release()
            for stream in placement.streams:
                stream.cancel()
        return result

    async def _place(self, turn: Turn, placement: Placement) -> None:
        match turn.setting:
            case Setting.IN_QUEUE:
                await placement.queued()
            case Setting.DRAINING:
                await placement.draining(lambda look: self._busy_worker(turn.strike, look))
            case Setting.UNDER_WAY:
                missing = self._coverage.missing(turn.strike)
                at_prefill = missing & {Stage.WAITING, Stage.PREFILLING}
                # When decode's long step is over, so are most prompts: the two are tried in turns.
                wants_offered = Stage.OFFERED in missing and (turn.attempt % 2 == 0 or not at_prefill)
                wanted = {Stage.OFFERED} if wants_offered else at_prefill
                await placement.under_way(
                    lambda look: any(wanted <= one.stages(look) for one in candidates(turn.strike, self._fleet)),
                    wants_offered=wants_offered,
                    wants_late=Stage.LATE in missing and Stage.EARLY not in missing,
                )

    def _busy_worker(self, strike: Strike, look: Look) -> str | None:
        """Of the victims that there might be, one that has work of each kind that its role has."""
        for victim in candidates(strike, self._fleet):
            has = victim.stages(look)
            if (Stage.EARLY in has) if victim.prefill_worker is None else (Stage.PREFILLING in has):
                return victim.prefill_worker or victim.decode_worker
        return None

    async def _strike(
        self, strike: Strike, placement: Placement, source: random.Random, started_s: float
    ) -> RoundResult:
        before = placement.look
        victim = self._choose(strike, before)
        attack = Attack(victim, self._fleet, placement.streams)
        if strike.fault is Fault.CANCEL:
            before, after = placement.look, await placement.look_again()
            attack.strike()
            struck_s = time.monotonic()
        else:
            attack.strike()
            struck_s = time.monotonic()
            after = await placement.look_again()
        struck = struck_stages(victim, before, after)
        lose_sent = source.random() < 0.5
        attack.finish(lose_sent=lose_sent)
        cores = CoreShare(self._fleet.pids)
        for link in self._fleet.transfer_links():
            if not attack.keeps_closed(link):
                link.open()
        await attack.mend()
        stuck = await self._wait_end(placement)
        ended_s = time.monotonic()
        others_share = cores.of_others(self._fleet.pids)
        left = await self._fleet.wait_idle()
        given_back_s = time.monotonic() - ended_s
        await self._fleet.wait_ready()
        judgements = {
            stream.request_id: judge(
                stream, self._expect(stream, before, struck_s, attack.silence_bound_s, others_share)
            )
            for stream in placement.streams
        }
        return RoundResult(
            victim=victim,
            judgements=judgements,
            struck=struck,
            faults=(*attack.faults, *stuck),
            left=tuple(left),
            given_back_s=given_back_s,
            others_share=others_share,
            elapsed_s=time.monotonic() - started_s,
        )

    async def _wait_end(self, placement: Placement) -> list[str]:
        """Where those are of which nothing is heard for strangely long."""
        stuck: dict[str, str] = {}
        deadline_s = time.monotonic() + END_TIMEOUT_S
        while running := [stream for stream in placement.streams if stream.running]:
            if time.monotonic() > deadline_s:
                break
            await asyncio.wait([stream.task for stream in running], timeout=1.0)
            late = [one for one in running if one.running and time.monotonic() - one.heard_s > STUCK_AFTER_S]
            if late and not all(one.request_id in stuck for one in late):
                look = await placement.look_again()
                stuck |= {one.request_id: look.tell(one.request_id) for one in late if one.request_id not in stuck}
        return [f"{request_id} was stuck: {where}" for request_id, where in stuck.items()]

    def _choose(self, strike: Strike, look: Look) -> Victim:
        """Who has requests in most of the stages that are missing yet; then, in most stages.

        While one worker drains it is that one: with the other one struck, none of its role would be left.
        """
        missing = self._coverage.missing(strike)
        draining = {name for name in self._fleet.workers if self._fleet.processes[name].draining}
        everyone = list(candidates(strike, self._fleet))
        return max(
            [one for one in everyone if {one.prefill_worker, one.decode_worker} & draining] or everyone,
            key=lambda victim: (len(victim.stages(look) & missing), len(victim.stages(look))),
        )

    def _expect(
        self,
        stream: Stream,
        before: Look,
        struck_s: float,
        bound_s: float | None,
        others_share: float,
    ) -> Expectation:
        seen = before.seen.get(stream.request_id)
        in_queue = seen is not None and Stage.QUEUED in seen.stages
        since_s = struck_s
        if in_queue and stream.arrivals_s:
            since_s = max(since_s, stream.arrivals_s[0])
        return Expectation(
            reference=self._asker.references[stream.question.name],
            since_s=since_s,
            bound_s=None if in_queue else bound_s,
            may_refuse=stream.route is not None,  # pinned to a worker that may be the victim
            others_share=others_share,
        )
