"""The short way, for steps of one token each, builds what the general way does."""

from __future__ import annotations

import numpy as np
import torch

from common.engine.batch_builder import BatchBuilder
from common.engine.scheduler_output import ScheduledSequence
from common.engine.sequence import Sequence
from common.kv.block_key import BlockKey
from common.kv.block_table import BlockTable
from common.request import Leg, RequestId, SamplingParams

BLOCK_SIZE = 4


def scheduled(number: int, num_tokens: int, block_ids: list[int], *, width: int) -> ScheduledSequence:
    """The last `width` tokens of a sequence."""
    table = BlockTable(BlockKey(b"root"), epoch=0)
    table.append(block_ids)
    token_ids = tuple(100 * number + position for position in range(num_tokens))
    leg = Leg(
        request_id=RequestId(str(number)),
        attempt=1,
        choice_indices=(0,),
        prompt_token_ids=token_ids,
        sampling=SamplingParams(seed=0),
    )
    sequence = Sequence(
        leg=leg,
        choice_indices=(0,),
        token_ids=np.array(token_ids, dtype="<u4"),
        table=table,
        arrival=number,
        submit_s=0.0,
    )
    return ScheduledSequence(sequence, num_tokens - width, width, samples=True)


def test_steps_of_one_token_each() -> None:
    builder = BatchBuilder(block_size=BLOCK_SIZE, device=torch.device("cpu"))
    first, second = scheduled(1, 9, [5, 3, 8], width=1), scheduled(2, 4, [7], width=1)
    short = builder.build([first, second])
    # A third with two tokens takes the general way; its own rows and its table are the last.
    general = builder.build([first, second, scheduled(3, 2, [1], width=2)])
    for name in ("token_ids", "positions", "slot_mapping", "block_tables", "seq_lens", "logits_indices"):
        expected = getattr(general, name)[:2]
        actual = getattr(short, name)
        assert actual.dtype == expected.dtype, name
        assert actual.tolist() == expected.tolist(), name
    assert short.slot_mapping.tolist() == [8 * BLOCK_SIZE, 7 * BLOCK_SIZE + 3]
    assert short.query_start_loc.tolist() == list(short.query_start_loc_cpu) == [0, 1, 2]
    assert short.seq_lens_cpu == (9, 4)
    assert short.query_start_loc.dtype == general.query_start_loc.dtype
