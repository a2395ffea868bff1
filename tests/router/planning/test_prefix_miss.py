"""Each uncached token has one cause."""

from __future__ import annotations

import random

from common.kv.block_key import BlockKey
from router.planning.prefix_history import PrefixHistory
from router.planning.prefix_miss import explain_miss


def causes(**facts: int) -> dict[str, int]:
    given = {"num_tokens": 1000, "num_cached": 0, "chosen_depth": 0, "best_depth": 0, "known_depth": 0, "stride": 64}
    return {cause.value: count for cause, count in explain_miss(**{**given, **facts}).tokens.items()}


def test_a_new_prompt() -> None:
    assert causes() == {"first_seen": 960, "below_stride": 40}


def test_a_prompt_that_goes_on_from_a_cached_one() -> None:
    facts = {"num_cached": 640, "chosen_depth": 640, "best_depth": 640, "known_depth": 640}
    assert causes(**facts) == {"diverged": 320, "below_stride": 40}
    assert explain_miss(num_tokens=1000, stride=64, **facts).diverged_at == 640


def test_evicted_everywhere() -> None:
    assert causes(known_depth=960) == {"evicted": 960, "below_stride": 40}
    assert (
        explain_miss(
            num_tokens=1000, num_cached=0, chosen_depth=0, best_depth=0, known_depth=960, stride=64
        ).diverged_at
        is None
    )


def test_another_worker_had_more() -> None:
    assert causes(num_cached=128, chosen_depth=128, best_depth=512, known_depth=640) == {
        "other_worker": 384,
        "evicted": 128,
        "diverged": 320,
        "below_stride": 40,
    }


def test_the_index_was_wrong() -> None:
    assert causes(num_cached=64, chosen_depth=512, best_depth=512, known_depth=512)["stale"] == 448


def test_a_full_hit_computes_its_last_token() -> None:
    whole = {"chosen_depth": 960, "best_depth": 960, "known_depth": 960}
    assert causes(num_cached=999, **whole) == {"below_stride": 1}
    assert causes(num_tokens=960, num_cached=959, **whole) == {"below_stride": 1}
    # What the index said lacked its last block.
    assert causes(num_tokens=960, num_cached=944, **whole) == {"stale": 15, "below_stride": 1}


def test_causes_add_up_to_what_was_computed() -> None:
    draw = random.Random(3)
    for _ in range(2000):
        num_tokens = draw.randint(1, 2000)
        facts = {name: draw.randint(0, 2000) for name in ("chosen_depth", "best_depth", "known_depth")}
        num_cached = draw.randint(0, num_tokens - 1)
        miss = explain_miss(num_tokens=num_tokens, num_cached=num_cached, stride=draw.choice([16, 64]), **facts)
        assert sum(miss.tokens.values()) == num_tokens - num_cached
        assert all(count > 0 for count in miss.tokens.values())


def keys(*numbers: int) -> list[BlockKey]:
    return [BlockKey(number.to_bytes(16, "little")) for number in numbers]


def test_history_knows_leading_points_and_forgets_the_oldest() -> None:
    history = PrefixHistory(max_points=6)
    history.add(keys(1, 2, 3))
    assert history.count_known(keys(1, 2, 9)) == 2
    assert history.count_known(keys(9, 2, 3)) == 0
    history.add(keys(11, 12, 13))
    history.add(keys(21))
    assert history.count_known(keys(1, 2, 3)) == 2  # its end went first
    assert history.count_known(keys(11, 12, 13)) == 3
