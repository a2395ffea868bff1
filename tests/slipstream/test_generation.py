from __future__ import annotations

import pytest

from router.generation import ChoiceDelta
from slipstream.generation import GenerationBuilder, GenerationDelta


def delta(first_index: int, *token_ids: int) -> GenerationDelta:
    return GenerationDelta(
        request_id="r", choices=(ChoiceDelta(index=0, first_index=first_index, token_ids=token_ids),)
    )


@pytest.mark.parametrize("first_index", [0, 1, 3])
def test_a_gap_or_a_repetition_never_looks_whole(first_index: int) -> None:
    builder = GenerationBuilder()
    builder.add(delta(0, 5, 6))
    with pytest.raises(ValueError, match="where 2 was due"):
        builder.add(delta(first_index, 7))


def test_an_answer_without_its_last_message_never_looks_whole() -> None:
    builder = GenerationBuilder()
    builder.add(delta(0, 5))
    with pytest.raises(ValueError, match="without its last message"):
        builder.build()
