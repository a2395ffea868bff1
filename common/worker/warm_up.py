"""A first real generation inside the worker: what is broken shows before anybody is served."""

from __future__ import annotations

import logging
import time

from common.engine.engine import Engine
from common.errors import EngineError
from common.request import Leg, RequestId, SamplingParams

logger = logging.getLogger(__name__)


def warm_up(engine: Engine) -> None:
    """Generates two tokens. Raises EngineError when they don't come."""
    started_s = time.monotonic()
    sampling = SamplingParams(max_tokens=2, temperature=0.0, ignore_eos=True, seed=0)
    engine.submit(
        Leg(
            request_id=RequestId("warm-up"),
            attempt=1,
            choice_indices=(0,),
            prompt_token_ids=(0,),
            sampling=sampling,
            canary=True,
        )
    )
    num_tokens = 0
    while engine.has_work():
        step = engine.step()
        num_tokens += sum(len(output.token_ids) for output in step.tokens)
        for end in step.ends:
            raise EngineError(f"the model does not answer: {end.message}")
    assert num_tokens == sampling.max_tokens
    logger.info("warmed up in %.2f s", time.monotonic() - started_s)
