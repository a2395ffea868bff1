"""What the router has promised: work to workers, and prefixes that will be there soon."""

from __future__ import annotations

from collections.abc import Sequence

from common.kv.block_key import BlockKey
from common.request import WorkerId
from router.planning.plan import Plan, PlanKind
from router.planning.recent_routes import RecentRoutes, Route
from router.planning.roster import Roster
from router.planning.worker_account import Charge, WorkerAccount


class Books:
    """The roster's accounts and the routes under way, changed together. Owned by whoever owns the fleet."""

    def __init__(self) -> None:
        self.roster = Roster()
        self.routes = RecentRoutes()

    def book(self, plan: Plan, point_keys: Sequence[BlockKey], stride: int) -> Booking:
        """Takes a plan on account, from the moment that it is made: the next plan must see it.

        `stride` is the number of tokens from one of the prompt's points to the next.
        """
        return Booking(self, plan, point_keys, stride)


class Booking:
    """One attempt's part of the books. `close` is idempotent, and gives back whatever is left."""

    def __init__(self, books: Books, plan: Plan, point_keys: Sequence[BlockKey], stride: int) -> None:
        self._books = books
        self._plan = plan
        self._point_keys = point_keys
        self._stride = stride
        self._computing_route: Route | None = None
        self._decode_route: Route | None = None
        self._charges: list[tuple[WorkerAccount, Charge]] = []
        candidate = plan.computing.candidate
        self._computing = candidate.worker_id
        if plan.kind is PlanKind.MOVE:
            return  # nobody computes a prompt for it
        self._charge(candidate.worker_id, candidate.prefill_s, plan.num_tokens - candidate.num_cached_tokens)
        self._computing_route = self._open_route(candidate.worker_id)

    def ask_decode(self, worker_id: WorkerId) -> None:
        """The decode worker is asked for room: one request more, until its report shows the reservation."""
        self._charge(worker_id, 0.0, 0)

    def decode_refused(self, worker_id: WorkerId) -> None:
        self._discharge(worker_id)

    def decode_granted(self, worker_id: WorkerId) -> None:
        """Its report with the reservation is here; what is handed over will be cached there too."""
        self._discharge(worker_id)
        self._decode_route = self._open_route(worker_id)

    def submitted(self) -> None:
        """The leg was sent to the worker that computes it."""
        for account, charge in self._charges:
            if account.info.worker_id == self._computing:
                account.submitted(charge)

    def computed(self, now_s: float) -> None:
        """The first token is here: the computing worker has the prompt's KV. Idempotent."""
        if self._computing_route is not None:
            self._books.routes.computed(self._computing_route, now_s)

    def committed(self, now_s: float) -> None:
        """Decode has it, too. Idempotent."""
        if self._decode_route is not None:
            self._books.routes.computed(self._decode_route, now_s)

    def close(self) -> None:
        """The attempt has ended."""
        for account, charge in self._charges:
            account.discharge(charge)
        for route in (self._computing_route, self._decode_route):
            if route is not None:
                self._books.routes.drop(route)

    def _charge(self, worker_id: WorkerId, seconds: float, num_tokens: int) -> None:
        account = self._books.roster.find(worker_id)
        if account is not None:
            self._charges.append((account, account.charge(seconds, num_tokens)))

    def _discharge(self, worker_id: WorkerId) -> None:
        for account, charge in self._charges:
            if account.info.worker_id == worker_id:
                account.discharge(charge)

    def _open_route(self, worker_id: WorkerId) -> Route | None:
        new_keys = self._point_keys[self._plan.depths.get(worker_id, 0) // self._stride :]
        return self._books.routes.open(worker_id, new_keys) if new_keys else None
