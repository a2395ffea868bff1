"""Split == both == transformers, on few and short prompts: every case that `make exactness` runs in full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from benchmarks.exactness.case import Case, FleetSpec
from benchmarks.exactness.cases import FAST, FULL
from benchmarks.exactness.fleet import Fleet
from benchmarks.exactness.lazy_reference_model import LazyReferenceModel
from benchmarks.exactness.runner import Runner
from benchmarks.exactness.workload import load_workload

NUM_NEW_TOKENS = 12
# Cases that take fewer prompts take the first ones: of each relation to the block sizes, one longer than a chunk.
PROMPTS = (
    "one_token",
    "korean_15",
    "hebrew_16",
    "ukrainian_63",
    "turkish_65",
    "rust_128",
    "czech_33",
    "dutch_64",
    "shell_79",
    "javascript_80",
    "chat_greeting",
    "go_95",
    "repeated_96",
    "erlkoenig_127",
    "chat_librarian_cats",
    "chat_librarian_stars",
)
CASES = [(spec, case) for spec in FAST for case in spec.cases]


class Fleets:
    """One running fleet at a time, the next one started when its first case comes."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._spec: FleetSpec | None = None
        self._fleet: Fleet | None = None
        self._stack = ExitStack()

    def get(self, spec: FleetSpec) -> Fleet:
        if self._fleet is None or spec != self._spec:
            self.close()
            self._fleet, self._spec = self._stack.enter_context(self._runner.fleet(spec)), spec
        return self._fleet

    def close(self) -> None:
        self._fleet = None
        self._stack.close()


@pytest.fixture(scope="module")
def runner() -> Runner:
    workload = load_workload(num_new_tokens=NUM_NEW_TOKENS, names=PROMPTS)
    return Runner(workload=workload, source=LazyReferenceModel(workload.model))


@pytest.fixture(scope="module")
def fleets(runner: Runner) -> Iterator[Fleets]:
    fleets = Fleets(runner)
    try:
        yield fleets
    finally:
        fleets.close()


# A fleet's cases run in their order, for one finds the caches as the other left them.
@pytest.mark.parametrize(("spec", "case"), CASES, ids=[f"{spec.name}: {case.name}" for spec, case in CASES])
def test_case(runner: Runner, fleets: Fleets, spec: FleetSpec, case: Case) -> None:
    result = runner.run(fleets.get(spec), spec, case)
    print(f"{result.name}: {result.path}, {result.elapsed_s:.1f} s")
    assert result.faults == ()
    assert result.ties == ()


def test_the_subset_has_every_case_and_setting_of_the_whole() -> None:
    def cases(specs: tuple[FleetSpec, ...]) -> set[tuple[bool, str]]:
        return {(spec.both, case.name) for spec in specs for case in spec.cases}

    def settings(specs: tuple[FleetSpec, ...]) -> set[tuple[bool, str, int]]:
        return {
            (spec.both, name, getattr(spec, name))
            for spec in specs
            for name in ("block_size", "max_num_batched_tokens", "short_of_blocks", "swaps")
        }

    assert cases(FAST) == cases(FULL)
    assert settings(FAST) == settings(FULL)
