"""Philox4x32-10, the counter-based random generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
(SC 2011): the same numbers on every machine, in any order, without state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]  # 32-bit words, kept in 64 bits for the products

ROUNDS = 10
MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
KEY_STEPS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
MASK = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawKeys:
    """What the random numbers of some rows depend on, each [num_rows] uint64."""

    seeds: npt.NDArray[np.uint64]
    choice_indices: npt.NDArray[np.uint64]
    positions: npt.NDArray[np.uint64]  # counted from 0 in prompt + outputs

    def __getitem__(self, rows: slice) -> DrawKeys:
        return DrawKeys(
            seeds=self.seeds[rows], choice_indices=self.choice_indices[rows], positions=self.positions[rows]
        )


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


def uniforms(keys: DrawKeys, rows: npt.NDArray[np.int64], items: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """[num_draws] numbers in (0, 1) with 53 random bits: draw i is a function of row `rows[i]`'s (seed, choice,
    position) and of the 32-bit `items[i]`."""
    counters = np.zeros((len(rows), 4), dtype=np.uint64)
    counters[:, 0] = keys.positions[rows]
    counters[:, 1] = keys.choice_indices[rows]
    counters[:, 2] = items
    seeds = keys.seeds[rows]
    words = philox4x32(counters, np.stack([seeds & MASK, seeds >> SHIFT], axis=1))
    bits = (words[:, 0] | (words[:, 1] << SHIFT)) >> np.uint64(11)
    return (bits.astype(np.float64) + 0.5) * 2.0**-53
