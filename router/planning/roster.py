"""The workers that can be planned for, by role, kept so that a plan costs the same for 8 workers and for 8,000."""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping

from common.config import Role
from common.request import WorkerId
from router.planning.hash_ring import HashRing
from router.planning.worker_account import WorkerAccount

NUM_HOMES = 3
# With so many drawn by chance, the least loaded of them is nearly as good as the least loaded of all (Mitzenmacher, The
# Power of Two Choices, 2001).
NUM_DRAWN = 4


class Side:
    """The trusted workers of one role, in the order of their ids. Owner: the roster."""

    def __init__(self) -> None:
        self._ids: list[WorkerId] = []
        self._positions: dict[WorkerId, int] | None = None  # made when next asked for
        self._accounts: dict[WorkerId, WorkerAccount] = {}
        self._mute: set[WorkerId] = set()  # those whose last probe brought no answer
        self._ring = HashRing()

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[WorkerAccount]:
        return iter(self._accounts.values())

    def __contains__(self, worker_id: object) -> bool:
        return worker_id in self._accounts

    def find(self, worker_id: str) -> WorkerAccount | None:
        return self._accounts.get(WorkerId(worker_id))

    def put(self, account: WorkerAccount) -> bool:
        """Another account of the same worker takes its place. Whether anything changed."""
        worker_id = account.info.worker_id
        changed = self._accounts.get(worker_id) is not account or (worker_id in self._mute) is account.answers
        if worker_id not in self._accounts:
            insort(self._ids, worker_id)
            self._positions = None
            self._ring.add(worker_id)
        self._accounts[worker_id] = account
        if account.answers:
            self._mute.discard(worker_id)
        else:
            self._mute.add(worker_id)
        return changed

    def remove(self, worker_id: WorkerId) -> bool:
        """Whether it was there."""
        if self._accounts.pop(worker_id, None) is None:
            return False
        del self._ids[bisect_left(self._ids, worker_id)]
        self._positions = None
        self._mute.discard(worker_id)
        self._ring.remove(worker_id)
        return True

    def homes(self, prefix_key: bytes) -> list[WorkerId]:
        """The home of a prefix, and the next ones of the ring."""
        return self._ring.successors(prefix_key, NUM_HOMES)

    def turn_of(self, worker_id: WorkerId, sequence: int) -> int:
        """Places after the worker whose turn it is."""
        if self._positions is None:
            self._positions = {known: position for position, known in enumerate(self._ids)}
        return (self._positions[worker_id] - sequence) % len(self._ids)

    def select(
        self,
        *,
        depths: Mapping[WorkerId, int],
        homes: Iterable[WorkerId],
        exclude: frozenset[str],
        sequence: int,
        max_candidates: int,
        draw: random.Random,
    ) -> list[WorkerAccount]:
        """All that are not excluded, or, when there are more than `max_candidates`: the deepest holders of the
        prefix, its homes, whose turn it is, and a few by chance.

        Those whose last probe brought no answer are left out, unless nobody else is left: the fault may be the probe's.
        """
        if self._mute and any(one not in exclude and one not in self._mute for one in self._ids):
            exclude = exclude | self._mute
        if len(self._ids) - len(exclude) <= max_candidates:
            return [account for account in self._accounts.values() if account.info.worker_id not in exclude]
        holders = [one for one in depths if one in self._accounts and one not in exclude]
        holders.sort(key=lambda one: -depths[one])
        chosen = dict.fromkeys(holders[: max_candidates // 2])
        chosen.update(dict.fromkeys(home for home in homes if home not in exclude))
        place = sequence % len(self._ids)
        num_wanted = min(max_candidates, len(chosen) + 1 + NUM_DRAWN)
        while len(chosen) < num_wanted:
            if (worker_id := self._ids[place]) not in exclude:
                chosen[worker_id] = None
            place = int(draw.random() * len(self._ids))
        return [self._accounts[worker_id] for worker_id in list(chosen)[:max_candidates]]


class Roster:
    """Every worker that the router knows, and those that take work by role. Owned by whoever owns the fleet."""

    def __init__(self) -> None:
        self._accounts: dict[WorkerId, WorkerAccount] = {}
        self._sides = {role: Side() for role in Role}
        self.version = 0  # counts changes of the sides

    def __iter__(self) -> Iterator[WorkerAccount]:
        return iter(self._accounts.values())

    def find(self, worker_id: str) -> WorkerAccount | None:
        return self._accounts.get(WorkerId(worker_id))

    def side(self, role: Role) -> Side:
        """Trusted workers whose role is exactly this one."""
        return self._sides[role]

    def update(self, account: WorkerAccount) -> None:
        """A worker came, or came back as another life, or its state or role is another one."""
        worker_id = account.info.worker_id
        self._accounts[worker_id] = account
        for role, side in self._sides.items():
            if account.trusted and account.info.role is role:
                self.version += side.put(account)
            else:
                self.version += side.remove(worker_id)

    def mean_work_s(self, role: Role, now_s: float) -> float:
        """Prefill seconds given lately to a worker of this role: what a newcomer starts with, so that it is not
        taken for one who owes work."""
        side = self._sides[role]
        return sum(account.work_s(now_s) for account in side) / len(side) if len(side) else 0.0

    def remove(self, worker_id: WorkerId) -> None:
        """A worker has left. Idempotent."""
        self._accounts.pop(worker_id, None)
        for side in self._sides.values():
            self.version += side.remove(worker_id)
