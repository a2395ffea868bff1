"""Prefixes that this router has just sent to a worker: they will be there soon, and the index can't know it yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.kv.block_key import BlockKey
from common.request import WorkerId

# After the first token the worker's own entries are on their way to the index: batches of 10 ms, and a round trip.
GRACE_S = 1.0


@dataclass(slots=True, eq=False)
class Route:
    """One request on its way to a worker, and the points that it will add there. Owned by RecentRoutes."""

    worker_id: WorkerId
    point_keys: Sequence[BlockKey]
    closed: bool = False


class RecentRoutes:
    """Counts, for each point, the open routes by worker. Times are monotonic seconds, told by the caller.

    Siblings of a request that arrive before its blocks are computed find their way to the same worker.
    """

    def __init__(self) -> None:
        self._points: dict[BlockKey, dict[WorkerId, int]] = {}
        self._ending: deque[tuple[float, Route]] = deque()

    def __len__(self) -> int:
        return len(self._points)

    def open(self, worker_id: WorkerId, point_keys: Sequence[BlockKey]) -> Route:
        """The worker was picked for a prompt that will add these points to what it has."""
        for key in point_keys:
            workers = self._points.get(key)
            if workers is None:
                self._points[key] = {worker_id: 1}
            else:
                workers[worker_id] = workers.get(worker_id, 0) + 1
        return Route(worker_id, point_keys)

    def computed(self, route: Route, now_s: float) -> None:
        """The prompt's KV is there: from now on the index tells. Idempotent."""
        if not route.closed:
            route.closed = True
            self._ending.append((now_s + GRACE_S, route))

    def drop(self, route: Route) -> None:
        """The worker will not compute it. Idempotent."""
        if not route.closed:
            route.closed = True
            self._remove(route)

    def extend(
        self, depths: Mapping[WorkerId, int], point_keys: Sequence[BlockKey], now_s: float
    ) -> Mapping[WorkerId, int]:
        """Leading points by worker, with those under way behind the ones that are known. `depths` stays as it is."""
        while self._ending and self._ending[0][0] <= now_s:
            self._remove(self._ending.popleft()[1])
        if not self._points or not point_keys:
            return depths
        by_depth: dict[int, list[WorkerId]] = {0: list(self._points.get(point_keys[0], ()))}
        for worker_id, depth in depths.items():
            by_depth.setdefault(depth, []).append(worker_id)
        extended = dict(depths)
        for depth, worker_ids in by_depth.items():
            under_way = self._points.get(point_keys[depth]) if depth < len(point_keys) else None
            for worker_id in worker_ids if under_way else ():
                reached = self._reached(worker_id, depth, point_keys)
                if reached > extended.get(worker_id, 0):
                    extended[worker_id] = reached
        return extended

    def _reached(self, worker_id: WorkerId, depth: int, point_keys: Sequence[BlockKey]) -> int:
        while depth < len(point_keys) and worker_id in self._points.get(point_keys[depth], ()):
            depth += 1
        return depth

    def _remove(self, route: Route) -> None:
        for key in route.point_keys:
            workers = self._points[key]
            if workers[route.worker_id] > 1:
                workers[route.worker_id] -= 1
            elif len(workers) > 1:
                del workers[route.worker_id]
            else:
                del self._points[key]
