"""Split == both == transformers, on few and short prompts: every case that `make exactness` runs in full."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.exactness.case import Case, FleetSpec
from benchmarks.exactness.cases import FAST, FULL
from benchmarks.exactness.fleet import Fleet
from benchmarks.exactness.lazy_reference_model import LazyReferenceModel
from benchmarks.exactness.runner import Runner
from benchmarks.exactness.workload import load_workload

NUM_NEW_TOKENS = 24
# Short ones first: cases that take fewer prompts take those. Each is in some relation to the block sizes.
PROMPTS = (
    "one_token",
    "korean_15",
    "hebrew_16",
    "czech_33",
    "ukrainian_63",
    "dutch_64",
    "turkish_65",
    "shell_79",
    "chat_greeting",
    "go_95",
    "rust_128",
    "harbour_192",
    "harbour_193",
    "german_257",
    "chat_librarian_cats",
    "chat_librarian_stars",
)
# The first case of a fleet, and those with preemptions, take all prompts.
PARAMETERS = [
    pytest.param(spec, case, id=f"{spec.name}: {case.name}".replace(" ", "_")) for spec in FAST for case in spec.cases
]


@pytest.fixture(scope="module")
def runner() -> Runner:
    workload = load_workload(num_new_tokens=NUM_NEW_TOKENS, names=PROMPTS)
    return Runner(workload=workload, source=LazyReferenceModel(workload.model))


@pytest.fixture(scope="module")
def fleet(request: pytest.FixtureRequest, runner: Runner) -> Iterator[Fleet]:
    with runner.fleet(request.param) as fleet:
        yield fleet


@pytest.mark.parametrize(("fleet", "case"), PARAMETERS, indirect=["fleet"], scope="module")
def test_case(runner: Runner, fleet: Fleet, case: Case, request: pytest.FixtureRequest) -> None:
    spec: FleetSpec = request.node.callspec.params["fleet"]
    result = runner.run(fleet, spec, case)
    print(result.name, result.path, f"{result.elapsed_s:.1f} s")
    assert result.faults == ()
    assert result.ties == ()


def test_the_subset_has_every_case_of_the_whole() -> None:
    def kinds(specs: tuple[FleetSpec, ...]) -> set[tuple[object, ...]]:
        return {
            (spec.both, spec.block_size if case.name in ("cold", "cached") else None, spec.short_of_blocks, case.name)
            for spec in specs
            for case in spec.cases
        }

    assert kinds(FAST) == kinds(FULL)
    chunks = {(spec.both, spec.max_num_batched_tokens) for spec in FAST}
    assert chunks == {(spec.both, spec.max_num_batched_tokens) for spec in FULL}
