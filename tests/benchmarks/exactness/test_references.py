"""The committed references: their file, their prompts, and what counts as a difference when they are made again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.exactness.compare import TIE_GAP
from benchmarks.exactness.corpus import NUM_NEW_TOKENS, sources
from benchmarks.exactness.reference import Reference, References, load_references, weights_digest
from benchmarks.exactness.reference_model import ReferenceModel
from benchmarks.exactness.references import compare_references, load_prompts

ONE = Reference(name="a", prompt_token_ids=(1,), token_ids=(2, 3), gaps=(1.0, TIE_GAP / 2), runner_ups=(4, 5))
MADE = References(weights_digest="d", made_with={"transformers": "5"}, references=(ONE,))


@pytest.fixture(scope="module")
def committed() -> References:
    return load_references()


def test_the_prompts_are_as_many_and_as_long_as_promised(committed: References) -> None:
    lengths = sorted(len(reference.prompt_token_ids) for reference in committed.references)
    assert len(lengths) >= 40
    assert lengths[0] == 1 and lengths[-1] == 1500
    assert sum(length > 500 for length in lengths) >= 6
    for block_size in (8, 16, 64):
        remainders = {length % block_size for length in lengths}
        assert {0, 1, block_size - 1} <= remainders


def test_every_reference_has_its_source_and_64_tokens(committed: References) -> None:
    assert [reference.name for reference in committed.references] == [source.name for source in sources()]
    assert {len(reference.token_ids) for reference in committed.references} == {NUM_NEW_TOKENS}


def test_some_prompts_share_prefixes(committed: References) -> None:
    heads = [reference.prompt_token_ids[:64] for reference in committed.references]
    assert len(set(heads)) < len(heads) - 4


def test_the_prompts_are_what_transformers_tokenises(committed: References, demo_model: Path) -> None:
    made = {prompt.name: prompt.token_ids for prompt in load_prompts(demo_model)}
    assert made == {reference.name: reference.prompt_token_ids for reference in committed.references}


def test_a_few_are_generated_alike(committed: References, demo_model: Path) -> None:
    model = ReferenceModel(demo_model)
    for name in ("one_token", "korean_15", "chat_greeting"):
        before = next(reference for reference in committed.references if reference.name == name).first(8)
        made = model.generate(name, before.prompt_token_ids, 8)
        assert made.token_ids == before.token_ids
        assert made.gaps == pytest.approx(before.gaps, abs=1e-3)


def test_they_are_of_the_demo_models_weights(committed: References, demo_model: Path) -> None:
    assert weights_digest(demo_model) == committed.weights_digest


def test_saving_and_loading_gives_the_same(tmp_path: Path) -> None:
    MADE.save(tmp_path / "references.json")
    assert load_references(tmp_path / "references.json") == MADE


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (MADE, []),
        (replace(MADE, weights_digest="e"), ["weights: committed d, now e"]),
        (replace(MADE, references=()), ["a: not made any more"]),
        (replace(MADE, references=(ONE, replace(ONE, name="b"))), ["b: not committed"]),
        (replace(MADE, references=(replace(ONE, token_ids=(9, 3)),)), ["a: token 0 was 2, is 9; gap 1"]),
        (replace(MADE, references=(replace(ONE, token_ids=(2, 9)),)), []),  # a tie
        (replace(MADE, references=(replace(ONE, prompt_token_ids=(7,)),)), ["a: the prompt's tokens differ"]),
    ],
)
def test_a_difference_is_told(made: References, expected: list[str]) -> None:
    assert compare_references(MADE, made) == expected
