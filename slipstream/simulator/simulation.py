"""One run of a trace through a simulated fleet."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from common.request import WorkerId
from router.policy import Policy
from slipstream.simulator.decode_worker import DecodeEvents
from slipstream.simulator.dispatcher import Dispatcher, Network
from slipstream.simulator.events import EventQueue
from slipstream.simulator.fleet import TICK_S, FleetPlan, SimulatedFleet
from slipstream.simulator.measurements import Measurements, Slo
from slipstream.simulator.prefill_worker import PrefillEvents
from slipstream.simulator.prefix_store import IndexDelays, PrefixStore
from slipstream.simulator.profile import Profile
from slipstream.simulator.simulated_router import SimulatedRouter
from slipstream.simulator.trace import Trace, TraceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Deaths:
    """Every `every_s` the next prefill worker dies, and returns after `down_s` as another life with an empty cache."""

    every_s: float
    down_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All that a run depends on beside the trace and the policy.

    Without `maps_late`, decode gives every prompt's blocks their places when it is planned.
    """

    fleet: FleetPlan
    profile: Profile
    num_routers: int = 1
    delays: IndexDelays = field(default_factory=IndexDelays)
    slo: Slo = field(default_factory=Slo)
    deaths: Deaths | None = None
    seed: int = 0
    submit_s: float = 0.0005
    maps_late: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run gave. Lists hold one number per worker, all its lives together."""

    measurements: Measurements
    prefill_busy_s: list[float]
    prefill_tokens: list[int]
    decode_busy_s: list[float]
    decode_requests_s: list[float]
    decode_kv_token_s: list[float]
    decode_waiting_token_s: list[float]  # of prompts that held blocks and could not be decoded from yet
    num_owed_maps: int
    duration_s: float  # until the last answer


class Simulation:
    """Runs once."""

    def __init__(self, trace: Trace, policy: Policy, scenario: Scenario) -> None:
        self._scenario = scenario
        self._requests: Iterator[TraceRequest] = iter(trace)
        self._events = EventQueue()
        self._draw = random.Random(scenario.seed)
        self._measurements = Measurements(slo=scenario.slo)
        store = PrefixStore(self._events, scenario.delays, trace.block_size, random.Random(f"{scenario.seed} index"))
        routers = [
            SimulatedRouter(index, policy, store, random.Random(f"{scenario.seed} router {index}"))
            for index in range(scenario.num_routers)
        ]
        self._fleet = SimulatedFleet(scenario.fleet, scenario.profile, self._events, store, routers)
        network = Network(
            submit_s=scenario.submit_s,
            transfer_bytes_per_s=scenario.profile.transfer_bytes_per_s,
            kv_bytes_per_token=scenario.profile.kv_bytes_per_token,
        )
        self._dispatcher = Dispatcher(
            self._events,
            network,
            routers,
            self._fleet,
            self._measurements,
            self._request_ended,
            maps_late=scenario.maps_late,
        )
        self._num_open = 0
        self._more = True
        self._num_deaths = 0
        self._max_bad: int | None = None

    def run(self, max_bad: int | None = None) -> Outcome:
        """Until every request has ended, or more than `max_bad` have missed the SLO."""
        self._max_bad = max_bad
        dispatcher, fleet, events = self._dispatcher, self._fleet, self._events
        fleet.start(
            PrefillEvents(
                began=dispatcher.began,
                chunk_done=dispatcher.chunk_done,
                prompt_done=dispatcher.prompt_done,
                step_done=fleet.report,
                submit_taken=fleet.report_submit,
            ),
            DecodeEvents(answer_done=dispatcher.answer_done, mapped=dispatcher.mapped, changed=fleet.report),
        )
        events.at(TICK_S, self._tick)
        if self._scenario.deaths is not None:
            events.at(self._scenario.deaths.every_s, self._kill_next)
        self._schedule_arrival()
        events.run()
        assert self._num_open == 0 or max_bad is not None
        return self._outcome()

    @property
    def _over(self) -> bool:
        return not self._more and not self._num_open

    def _schedule_arrival(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._more = False
        else:
            self._events.at(request.arrival_s, self._arrive, request)

    def _arrive(self, request: TraceRequest) -> None:
        self._num_open += 1
        self._schedule_arrival()
        self._dispatcher.arrive(request, int(self._draw.random() * self._scenario.num_routers))

    def _request_ended(self) -> None:
        self._num_open -= 1
        if self._max_bad is not None and self._measurements.num_bad > self._max_bad:
            self._events.stop()

    def _tick(self) -> None:
        if not self._over:
            self._fleet.tick()
            self._events.at(self._events.now_s + TICK_S, self._tick)

    def _kill_next(self) -> None:
        deaths = self._scenario.deaths
        if deaths is None or self._over:
            return
        self._num_deaths += 1
        worker_id = WorkerId(f"prefill-{(self._num_deaths - 1) % self._scenario.fleet.num_prefill}")
        now_s = self._events.now_s
        self._events.at(now_s + deaths.every_s, self._kill_next)
        if self._fleet.prefill(worker_id).dead:
            return
        lost = self._fleet.kill(worker_id)
        self._events.at(now_s + deaths.down_s, self._return, worker_id, self._num_deaths + 1)
        self._dispatcher.lose(lost)

    def _return(self, worker_id: WorkerId, incarnation: int) -> None:
        self._fleet.start_prefill(worker_id, incarnation)
        self._dispatcher.retry_waiting()

    def _outcome(self) -> Outcome:
        lives = [*self._fleet.ended_lives, *(one for one in self._fleet.prefill_workers if not one.dead)]
        busy_s: dict[str, float] = {}
        tokens: dict[str, int] = {}
        for worker in lives:
            name = worker.info.worker_id
            busy_s[name] = busy_s.get(name, 0.0) + worker.busy_s
            tokens[name] = tokens.get(name, 0) + worker.num_computed_tokens
        return Outcome(
            measurements=self._measurements,
            prefill_busy_s=list(busy_s.values()),
            prefill_tokens=list(tokens.values()),
            decode_busy_s=[worker.busy_s for worker in self._fleet.decode_workers],
            decode_requests_s=[worker.num_requests_s for worker in self._fleet.decode_workers],
            decode_kv_token_s=[worker.num_kv_token_s for worker in self._fleet.decode_workers],
            decode_waiting_token_s=[worker.desk.waiting_token_s for worker in self._fleet.decode_workers],
            num_owed_maps=sum(worker.desk.num_owed_maps for worker in self._fleet.decode_workers),
            duration_s=self._measurements.last_end_s,
        )
