"""Two engines in one process, and a hand-over between them whose bytes a test can see and change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from common.config import DType, EngineConfig
from common.engine.build import BuiltEngine, build_engine
from common.engine.results import HandedOver, StepResult
from common.request import Leg, RequestId, SamplingParams

# Called with the logical block and its bytes on their way, which it may change.
Change = Callable[[int, npt.NDArray[np.uint8]], None]


class EnginePair:
    """One engine prefills, the other decodes. Owned by one thread."""

    def __init__(self, model: Path, *, block_size: int = 16) -> None:
        config = EngineConfig(
            model=str(model),
            dtype=DType.FLOAT32,
            kv_memory="64MiB",
            max_model_len=512,
            block_size=block_size,
            num_threads=2,
        )
        self.prefill: BuiltEngine = build_engine(config, hand_back_when_preempted=False)
        self.decode: BuiltEngine = build_engine(config, hand_back_when_preempted=True)
        self._num_requests = 0

    def generate(
        self, prompt_token_ids: tuple[int, ...], num_new_tokens: int, change: Change = lambda logical_block, data: None
    ) -> tuple[int, ...]:
        """Greedy tokens: the first from prefill, the others from decode, over blocks that passed `change`."""
        leg = self._leg(prompt_token_ids, num_new_tokens)
        reservation = self.decode.engine.reserve(leg)
        (sink_map,) = reservation.maps
        self.prefill.engine.submit(leg, hand_over=True)
        source_ids: dict[int, int] = {}
        token_ids: list[int] = []
        handed_over: list[HandedOver] = []
        while not handed_over:
            step = self.prefill.engine.step()
            token_ids += _tokens(step)
            handed_over += step.handed_over
            for part in step.computed:
                source_ids.update(enumerate(part.block_ids, start=part.first_logical_block))
        for logical_block in sink_map.missing:
            data = self.prefill.kv_cache.block_bytes(0, source_ids[logical_block]).copy()
            change(logical_block, data)
            self.decode.kv_cache.write_block_bytes(0, sink_map.block_ids[logical_block], data)
        self.decode.engine.commit(reservation.reservation_id, handed_over[0].first_tokens, leg.attempt)
        self.prefill.engine.release_lease(leg.request_id, leg.attempt)
        while self.decode.engine.has_work():
            token_ids += _tokens(self.decode.engine.step())
        return tuple(token_ids)

    def reset(self) -> None:
        """Forgets every cached block: a corrupted one must not be reused. Checks both engines' books."""
        for built in (self.prefill, self.decode):
            built.engine.reset_prefix_cache()
            assert built.engine.check_integrity().num_used_blocks == 0

    def _leg(self, prompt_token_ids: tuple[int, ...], num_new_tokens: int) -> Leg:
        self._num_requests += 1
        return Leg(
            request_id=RequestId(f"r{self._num_requests}"),
            attempt=1,
            choice_indices=(0,),
            prompt_token_ids=prompt_token_ids,
            sampling=SamplingParams(max_tokens=num_new_tokens, temperature=0.0, ignore_eos=True, seed=0),
        )


def _tokens(step: StepResult) -> list[int]:
    assert not step.ends, step.ends
    return [token_id for output in step.tokens for token_id in output.token_ids]
