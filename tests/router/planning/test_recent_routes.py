"""Prefixes under way are known until the index has them."""

from __future__ import annotations

import random
from collections import Counter

from common.kv.block_key import BlockKey
from common.request import WorkerId
from router.planning.recent_routes import GRACE_S, RecentRoutes, Route


def keys(*numbers: int) -> list[BlockKey]:
    return [BlockKey(number.to_bytes(16, "little")) for number in numbers]


def extended(routes: RecentRoutes, point_keys: list[BlockKey], now_s: float) -> dict[WorkerId, int]:
    """Leading points under way, where nothing is known to be held."""
    return dict(routes.extend({}, point_keys, now_s))


P0, P1 = WorkerId("p0"), WorkerId("p1")


def test_siblings_find_the_worker_that_was_picked() -> None:
    routes = RecentRoutes()
    routes.open(P0, keys(1, 2, 3))
    assert extended(routes, keys(1, 2, 9), 0.0) == {P0: 2}
    assert extended(routes, keys(9, 2, 3), 0.0) == {}


def test_depths_are_leading_points_for_each_worker() -> None:
    routes = RecentRoutes()
    routes.open(P0, keys(1, 2, 3))
    routes.open(P1, keys(1))
    assert extended(routes, keys(1, 2, 3), 0.0) == {P0: 3, P1: 1}


def test_what_is_under_way_goes_on_from_what_is_held() -> None:
    routes = RecentRoutes()
    routes.open(P0, keys(3, 4))
    asked = keys(1, 2, 3, 4, 5)
    assert routes.extend({P0: 2, P1: 2}, asked, 0.0) == {P0: 4, P1: 2}
    assert routes.extend({P0: 3}, asked, 0.0) == {P0: 4}
    assert routes.extend({P0: 1}, asked, 0.0) == {P0: 1}  # a point between was evicted
    assert routes.extend({P0: 5}, asked, 0.0) == {P0: 5}


def test_computed_prefixes_stay_for_the_grace_only() -> None:
    routes = RecentRoutes()
    route = routes.open(P0, keys(1))
    routes.computed(route, 10.0)
    routes.drop(route)
    assert extended(routes, keys(1), 10.0 + GRACE_S / 2) == {P0: 1}
    assert extended(routes, keys(1), 10.0 + GRACE_S) == {}
    assert len(routes) == 0


def test_a_dropped_route_leaves_those_of_others() -> None:
    routes = RecentRoutes()
    first, second = routes.open(P0, keys(1, 2)), routes.open(P0, keys(1))
    routes.drop(first)
    routes.drop(first)
    assert extended(routes, keys(1, 2), 0.0) == {P0: 1}
    routes.drop(second)
    assert len(routes) == 0


def test_random_routes_match_a_plain_count() -> None:
    draw = random.Random(5)
    routes, now_s = RecentRoutes(), 0.0
    alive: list[tuple[Route, float | None]] = []
    for _ in range(3000):
        now_s += draw.random() * 0.2
        alive = [(route, end_s) for route, end_s in alive if end_s is None or end_s > now_s]
        open_routes = [position for position, (_, end_s) in enumerate(alive) if end_s is None]
        if draw.random() < 0.5 or not open_routes:
            length = draw.randint(0, 6)
            point_keys = keys(*(range(length) if draw.random() < 0.5 else range(100, 100 + length)))
            alive.append((routes.open(draw.choice([P0, P1]), point_keys), None))
        elif draw.random() < 0.5:
            routes.drop(alive.pop(draw.choice(open_routes))[0])
        else:
            position = draw.choice(open_routes)
            routes.computed(alive[position][0], now_s)
            alive[position] = (alive[position][0], now_s + GRACE_S)
        asked = keys(*range(6))
        expected: Counter[WorkerId] = Counter()
        for worker_id in (P0, P1):
            for count in range(1, 7):
                held = all(
                    any(route.worker_id == worker_id and key in route.point_keys for route, _ in alive)
                    for key in asked[:count]
                )
                expected[worker_id] = count if held else expected[worker_id]
        assert extended(routes, asked, now_s) == {one: count for one, count in expected.items() if count}
