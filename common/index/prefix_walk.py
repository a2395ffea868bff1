"""How deep each worker holds a prefix, from the answers at its points. Pure; no connection, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from common.index.points import Tier, WorkerRef

NUM_TIERS = len(Tier)


class Holders(NamedTuple):
    """The live workers at one point: `within[tier]` hold it in that tier or a faster one."""

    within: tuple[frozenset[WorkerRef], ...]  # [NUM_TIERS], each contains the one before


NOBODY = Holders((frozenset(),) * NUM_TIERS)


class PrefixDepth(NamedTuple):
    """Leading points that one worker holds; each count contains the one before."""

    device_points: int
    host_points: int  # in host memory or faster
    disk_points: int  # on disk or faster: all that it really holds
    speculative_points: int  # with those that it is expected to hold soon


def walk(points: Sequence[Holders | None]) -> dict[WorkerRef, PrefixDepth]:
    """Depth of every worker that holds the first point, at least speculatively.

    None is a point whose shard did not answer: whoever holds a deeper one holds it too, since workers evict
    the deepest first.
    """
    distinct = [point for point in dict(zip(map(id, points), points, strict=True)).values() if point is not None]
    depths: list[dict[WorkerRef, int]] = []
    for tier in Tier:
        same = tier > 0 and all(point.within[tier] is point.within[tier - 1] for point in distinct)
        depths.append(depths[-1] if same else _depths(points, tier))
    device, host, disk, speculative = depths
    made: dict[tuple[int, int, int, int], PrefixDepth] = {}  # of a thousand holders, most are equal
    found: dict[WorkerRef, PrefixDepth] = {}
    for worker, depth in speculative.items():
        counts = (device.get(worker, 0), host.get(worker, 0), disk.get(worker, 0), depth)
        if counts not in made:
            made[counts] = PrefixDepth(*counts)
        found[worker] = made[counts]
    return found


def holders_of(entries: dict[WorkerRef, Tier]) -> Holders:
    """Equal sets are one object, which makes walking cheap."""
    within: list[frozenset[WorkerRef]] = []
    for tier in Tier:
        held = frozenset(worker for worker, at in entries.items() if at <= tier)
        within.append(within[-1] if within and within[-1] == held else held)
    return Holders(tuple(within))


def _depths(points: Sequence[Holders | None], tier: Tier) -> dict[WorkerRef, int]:
    depths: dict[WorkerRef, int] = {}
    alive: set[WorkerRef] | None = None
    depth = 0  # points up to the last one that is known to be held
    # Neighbouring points mostly have the same holders, as one object: what contains `alive` once always does.
    supersets: set[int] = set()
    previous: Holders | None = None
    for index, point in enumerate(points):
        if point is None:
            continue
        if point is previous:
            depth = index + 1
            continue
        held = point.within[tier]
        if alive is None:
            alive = set(held)
        elif id(held) not in supersets:
            for worker in alive - held:
                depths[worker] = depth
            alive &= held
        if not alive:
            break
        supersets.add(id(held))
        previous = point
        depth = index + 1
    depths.update(dict.fromkeys(alive or (), depth))
    return depths
