import numpy as np
import pytest

from common.engine.philox import DrawKeys, philox4x32, uniforms

# Known answers of Random123 (kat_vectors: philox4x32 10).
KNOWN = [
    ([0, 0, 0, 0], [0, 0], "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter: list[int], key: list[int], expected: str) -> None:
    words = philox4x32(np.array([counter], dtype=np.uint64), np.array([key], dtype=np.uint64))
    assert " ".join(f"{word:08x}" for word in words[0].tolist()) == expected


def keys(seeds: list[int], choices: list[int], positions: list[int]) -> DrawKeys:
    return DrawKeys(
        seeds=np.array(seeds, dtype=np.uint64),
        choice_indices=np.array(choices, dtype=np.uint64),
        positions=np.array(positions, dtype=np.uint64),
    )


def test_a_number_does_not_depend_on_its_batch() -> None:
    together = keys([2**64 - 1, 0, 5, 5], [0, 1, 2, 2], [10, 0, 7, 8])
    rows, items = np.array([0, 1, 2, 3, 3]), np.array([0, 2**32 - 1, 4, 4, 5])
    numbers = uniforms(together, rows, items).tolist()
    alone = [
        float(uniforms(together[row : row + 1], np.array([0]), items[index : index + 1])[0])
        for index, row in enumerate(rows.tolist())
    ]
    assert numbers == alone


def test_every_input_matters() -> None:
    seeds, choices, positions = [1, 2, 1, 1, 1 + 2**32, 1], [0, 0, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0]
    numbers = uniforms(keys(seeds, choices, positions), np.arange(6), np.array([0, 0, 0, 0, 0, 1]))
    assert len(set(numbers.tolist())) == 6


def test_numbers_are_uniform_in_the_unit_interval() -> None:
    count = 20_000
    numbers = uniforms(keys([3], [0], [0]), np.zeros(count, dtype=np.int64), np.arange(count))
    assert numbers.dtype == np.float64
    assert 0.0 < numbers.min() < numbers.max() < 1.0
    observed = np.histogram(numbers, bins=20, range=(0, 1))[0]
    expected = count / 20
    assert ((observed - expected) ** 2 / expected).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001
