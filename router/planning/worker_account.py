"""What a router knows of a worker's load: its last report, and what the router sent it that no report shows yet."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from common.config import Role
from common.cost import UNMEASURED, StepTimes
from router.worker_info import WorkerInfo, WorkerLoad

# Over so many seconds a worker's utilisation, and the work that it was given, are remembered.
UTILIZATION_S = 60.0
WORK_S = 1200.0
# Of KV into a worker, until transfers have been seen.
RECEIVE_BYTES_PER_S = 1e9
# What of the known rate one further transfer changes; smaller ones tell of latency, not of the rate.
TRANSFER_WEIGHT = 0.1
MIN_MEASURED_BYTES = 2**20


@dataclass(slots=True, eq=False)
class Charge:
    """Prefill work that a plan gives a worker, until the worker's own report counts it. Owned by the account."""

    seconds: float
    num_tokens: int
    submit_number: int | None = None
    settled: bool = False


class WorkerAccount:
    """Times are monotonic seconds, told by the caller. Owned by whoever owns the fleet.

    A charge is made when a worker is picked, numbered when the leg is submitted, and gone when a report says that
    the worker has taken so many submits, or when the attempt gives it up: so that the same work is never counted
    twice, and work of other routers always.
    """

    def __init__(
        self, info: WorkerInfo, *, prior: StepTimes = UNMEASURED, work_s: float = 0.0, now_s: float = 0.0
    ) -> None:
        self.info = info
        self.load = WorkerLoad(step_times=prior)
        self.available = False  # its stream is up
        self.doubtful = False  # it has said nothing for a while
        self.answers = True  # whether the last probe through it came back
        self.num_submits = 0
        self.num_charged_requests = 0
        self.utilization = 0.0
        self.receive_bytes_per_s = RECEIVE_BYTES_PER_S
        self._prior = prior
        self._report_s = now_s
        self._reported = False
        self._charges: deque[Charge] = deque()
        self._unreported_s = 0.0
        self._num_unreported_tokens = 0
        self._done_s = work_s

    @property
    def usable(self) -> bool:
        """It is up and takes work."""
        return self.available and not self.info.draining

    @property
    def trusted(self) -> bool:
        """Usable, and it has spoken of late: it is planned for. Requests wait for one that is doubtful."""
        return self.usable and not self.doubtful

    def can(self, role: Role) -> bool:
        """Whether it can take a prefill or a decode leg."""
        return self.info.role is Role.BOTH or self.info.role is role

    @property
    def step_times(self) -> StepTimes:
        return self.load.step_times or self._prior

    def queue_s(self, now_s: float) -> float:
        """Seconds of prefill work ahead of a request that is sent now."""
        return max(0.0, self.load.queue_s - (now_s - self._report_s)) + self._unreported_s

    def done_s(self, now_s: float) -> float:
        """Seconds that it was busy of late."""
        return self._done_s * math.exp((self._report_s - now_s) / WORK_S)

    def work_s(self, now_s: float) -> float:
        """Work given to it of late: what it has done, and what it has to do."""
        return self.done_s(now_s) + self.queue_s(now_s)

    @property
    def num_queued_tokens(self) -> int:
        """Tokens of prefill work ahead of a request that is sent now."""
        return self.load.num_waiting_tokens + self._num_unreported_tokens

    @property
    def num_requests(self) -> int:
        """Requests that it holds or is about to."""
        load = self.load
        return load.num_running + load.num_waiting + load.num_reservations + self.num_charged_requests

    def take_report(self, load: WorkerLoad, now_s: float) -> None:
        """A load report arrived."""
        elapsed_s = now_s - self._report_s
        if self._reported and elapsed_s > 0:
            busy_s = max(0.0, load.busy_s - self.load.busy_s)
            keep = math.exp(-elapsed_s / UTILIZATION_S)
            self.utilization = keep * self.utilization + (1 - keep) * min(1.0, busy_s / elapsed_s)
            self._done_s = math.exp(-elapsed_s / WORK_S) * self._done_s + busy_s
        self.load = load
        self._report_s = now_s
        self._reported = True
        while self._charges and _is_taken(self._charges[0], load.num_submits_taken):
            self._settle(self._charges.popleft())

    def charge(self, seconds: float, num_tokens: int) -> Charge:
        """The worker was picked for so much prefill work."""
        charge = Charge(seconds, num_tokens)
        self._unreported_s += seconds
        self._num_unreported_tokens += num_tokens
        self.num_charged_requests += 1
        return charge

    def submitted(self, charge: Charge) -> None:
        """The leg was sent; numbers must be given in the order of sending."""
        self.num_submits += 1
        charge.submit_number = self.num_submits
        if not charge.settled:
            self._charges.append(charge)

    def discharge(self, charge: Charge) -> None:
        """The leg has ended, or was never sent. Idempotent."""
        self._settle(charge)

    def note_transfer(self, num_bytes: int, seconds: float) -> None:
        """So much KV came to it in this time of sending."""
        if num_bytes >= MIN_MEASURED_BYTES and seconds > 0:
            self.receive_bytes_per_s += TRANSFER_WEIGHT * (num_bytes / seconds - self.receive_bytes_per_s)

    def reset(self) -> None:
        """The stream broke: what was sent over it is void, and numbers begin anew."""
        self.num_submits = 0
        while self._charges:
            self._settle(self._charges.popleft())

    def _settle(self, charge: Charge) -> None:
        if charge.settled:
            return
        charge.settled = True
        self.num_charged_requests -= 1
        self._num_unreported_tokens -= charge.num_tokens
        # Rounding must not leave a trace of what is gone.
        self._unreported_s = self._unreported_s - charge.seconds if self.num_charged_requests else 0.0


def _is_taken(charge: Charge, num_submits_taken: int) -> bool:
    return charge.settled or (charge.submit_number is not None and charge.submit_number <= num_submits_taken)
