"""Philox4x32-10, the counter-based random generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
(SC 2011): the same numbers on every machine, in any order, without state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]  # 32-bit words, kept in 64 bits for the products

ROUNDS = 10
MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
KEY_STEPS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
MASK = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


def philox4x32(counters: Words, keys: Words) -> Words:
    """[num_draws, 4] words from counters [num_draws, 4] and keys [num_draws, 2]."""
    c0, c1, c2, c3 = (counters[:, index] for index in range(4))
    k0, k1 = keys[:, 0], keys[:, 1]
    for _ in range(ROUNDS):
        product0 = c0 * MULTIPLIERS[0]
        product1 = c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (product1 >> SHIFT) ^ c1 ^ k0,
            product1 & MASK,
            (product0 >> SHIFT) ^ c3 ^ k1,
            product0 & MASK,
        )
        k0 = (k0 + KEY_STEPS[0]) & MASK
        k1 = (k1 + KEY_STEPS[1]) & MASK
    return np.stack([c0, c1, c2, c3], axis=1)


def uniforms(seeds: Sequence[int], choice_indices: Sequence[int], positions: Sequence[int]) -> npt.NDArray[np.float64]:
    """[num_draws] numbers in [0, 1) with 53 random bits, each a function of its own (seed, choice, position)."""
    seed_words = np.array(seeds, dtype=np.uint64)
    keys = np.stack([seed_words & MASK, seed_words >> SHIFT], axis=1)
    counters = np.zeros((len(seeds), 4), dtype=np.uint64)
    counters[:, 0] = positions
    counters[:, 1] = choice_indices
    words = philox4x32(counters, keys)
    bits = (words[:, 0] | (words[:, 1] << SHIFT)) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53
