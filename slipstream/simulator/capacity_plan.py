"""How many workers of each role meet an SLO at least cost."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from common.errors import ConfigError
from router.policy import Policy
from slipstream.simulator.experiment import Traffic
from slipstream.simulator.simulation import Scenario, Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanGoal:
    """`attainment` is the share of requests that must meet the SLO; costs are per worker."""

    attainment: float = 0.9
    prefill_cost: float = 1.0
    decode_cost: float = 1.0
    max_workers: int = 256  # of a role


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One fleet that was tried. `attained` is known only where the goal is met: other runs end early."""

    num_prefill: int
    num_decode: int
    cost: float
    meets: bool
    attained: float | None


class CapacityPlanner:
    """Takes for granted that more workers never do worse. Each trial is a simulation."""

    def __init__(
        self,
        traffic: Traffic,
        scenario: Scenario,
        policy: Policy,
        goal: PlanGoal,
        tried: Callable[[Trial], None] = lambda _: None,
    ) -> None:
        self.trials: dict[tuple[int, int], Trial] = {}
        self._traffic = traffic
        self._scenario = scenario
        self._policy = policy
        self._goal = goal
        self._tried = tried

    def search(self) -> Trial:
        """The cheapest fleet that meets the goal. Raises ConfigError when none does."""
        enough = self._first_enough()
        goal = self._goal
        least_prefill = self._least(lambda count: self._meets(count, enough), enough)
        least_decode = self._least(partial(self._meets, enough), enough)
        best: Trial | None = None
        for num_prefill in range(least_prefill, enough + 1):
            if best is not None and self._cost(num_prefill, least_decode) >= best.cost:
                break
            most = enough
            if best is not None:
                # Only what would be cheaper than the best so far.
                most = min(enough, math.ceil((best.cost - num_prefill * goal.prefill_cost) / goal.decode_cost) - 1)
            if most >= least_decode and self._meets(num_prefill, most):
                num_decode = self._least(partial(self._meets, num_prefill), most, least_decode)
                best = self.trials[num_prefill, num_decode]
        assert best is not None
        return best

    def _first_enough(self) -> int:
        """So many of each role meet the goal."""
        offered = self._traffic.offered
        count = 1
        if offered.duration_s:
            count = max(1, math.ceil(offered.prefill_s / offered.duration_s))
        while count <= self._goal.max_workers:
            if self._meets(count, count):
                return count
            count = count * 2
        if self._meets(self._goal.max_workers, self._goal.max_workers):
            return self._goal.max_workers
        raise ConfigError(
            "plan", f"{self._goal.max_workers} workers of each role don't meet the SLO; ease it, or raise max_workers"
        )

    @staticmethod
    def _least(meets: Callable[[int], bool], most: int, least: int = 1) -> int:
        """The smallest count that does, given that `most` does."""
        low, high = least, most
        while low < high:
            middle = (low + high) // 2
            if meets(middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _meets(self, num_prefill: int, num_decode: int) -> bool:
        trial = self.trials.get((num_prefill, num_decode))
        if trial is None:
            trial = self._try(num_prefill, num_decode)
            self.trials[num_prefill, num_decode] = trial
            self._tried(trial)
        return trial.meets

    def _try(self, num_prefill: int, num_decode: int) -> Trial:
        fleet = dataclasses.replace(self._scenario.fleet, num_prefill=num_prefill, num_decode=num_decode)
        num_requests = self._traffic.offered.num_requests
        max_bad = math.floor((1 - self._goal.attainment) * num_requests + 1e-9)
        scenario = dataclasses.replace(self._scenario, fleet=fleet)
        measured = Simulation(self._traffic.trace, self._policy, scenario).run(max_bad).measurements
        meets = measured.num_bad <= max_bad
        return Trial(
            num_prefill=num_prefill,
            num_decode=num_decode,
            cost=self._cost(num_prefill, num_decode),
            meets=meets,
            attained=measured.num_good / num_requests if meets else None,
        )

    def _cost(self, num_prefill: int, num_decode: int) -> float:
        return num_prefill * self._goal.prefill_cost + num_decode * self._goal.decode_cost
