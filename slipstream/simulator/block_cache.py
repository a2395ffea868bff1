"""The blocks of one simulated worker: in use, held for the next prompt, or free."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

# What a worker without a limit says it has.
ENDLESS = 1 << 30


class BlockCache:
    """Keyed blocks in use are counted by user; those in no use wait for eviction, the one used longest ago first, and
    of a prompt its end first. Private blocks (not computed yet, or an answer's) have no key.

    `changes` collects keys that came or went, for its owner to publish and clear.
    """

    def __init__(self, capacity: int | None) -> None:
        self.capacity = ENDLESS if capacity is None else capacity
        self.changes: list[int] = []
        self._used: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._num_private = 0

    def __contains__(self, key: object) -> bool:
        return key in self._used or key in self._idle

    def __iter__(self) -> Iterator[int]:
        yield from self._used
        yield from self._idle

    @property
    def num_free(self) -> int:
        """Blocks that could be taken, held ones that nobody uses among them."""
        return self.capacity - len(self._used) - self._num_private

    @property
    def num_cached(self) -> int:
        """Blocks that a prompt could find."""
        return len(self._used) + len(self._idle)

    def num_leading(self, keys: Sequence[int]) -> int:
        """How many blocks of a prompt are held, from its start."""
        used, idle = self._used, self._idle
        for index, key in enumerate(keys):
            if key not in used and key not in idle:
                return index
        return len(keys)

    def num_idle(self, keys: Iterable[int]) -> int:
        """How many of these are held and in no use: free, until they are taken again."""
        return sum(1 for key in keys if key in self._idle)

    def num_own(self, keys: Iterable[int]) -> int:
        """How many of these have no other user than the one that asks."""
        return sum(1 for key in keys if self._used[key] == 1)

    def try_take(self, keys: Sequence[int], num_more: int) -> int | None:
        """Room for a prompt and `num_more` blocks; the leading ones that are held are used as they are.

        Returns how many those are; None when there is no room.
        """
        num_held = self.num_leading(keys)
        num_new = len(keys) - num_held + num_more
        if num_new > self.num_free - self.num_idle(keys[:num_held]):
            return None
        for key in keys[:num_held]:
            self._use(key)
        self._num_private += num_new
        while len(self._used) + len(self._idle) + self._num_private > self.capacity:
            key, _ = self._idle.popitem(last=False)
            self.changes.append(key)
        return num_held

    def store(self, keys: Iterable[int]) -> None:
        """Private blocks that are computed: from now on others can use them."""
        for key in keys:
            self._num_private -= 1
            if key not in self:
                self.changes.append(key)
            self._use(key)

    def release(self, keys: Sequence[int], num_private: int) -> None:
        """A request needs its blocks no longer: keyed ones are held until they are evicted."""
        used, idle = self._used, self._idle
        self._num_private -= num_private
        for key in reversed(keys):
            num_users = used[key] - 1
            if num_users:
                used[key] = num_users
            else:
                del used[key]
                idle[key] = None

    def check_integrity(self) -> None:
        """Raises AssertionError when the books are wrong."""
        assert self._num_private >= 0 and all(count > 0 for count in self._used.values())
        assert not self._used.keys() & self._idle.keys()
        assert len(self._used) + len(self._idle) + self._num_private <= self.capacity

    def _use(self, key: int) -> None:
        self._idle.pop(key, None)
        self._used[key] = self._used.get(key, 0) + 1
