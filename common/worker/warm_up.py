"""A first real generation inside the worker: what is broken shows before anybody is served."""

from __future__ import annotations

import logging
import time

from common.engine.engine import Engine
from common.errors import EngineError
from common.request import Leg, RequestId, SamplingParams

logger = logging.getLogger(__name__)


# Prompts of one token and of more: what they take is the first that planning knows of this machine.
PROMPT_LENGTHS = (1, 8, 32, 1, 8, 32)
NUM_TOKENS = 2


def warm_up(engine: Engine) -> None:
    """Generates a few tokens. Raises EngineError when they don't come."""
    started_s = time.monotonic()
    for number, num_tokens in enumerate(PROMPT_LENGTHS):
        if num_tokens + NUM_TOKENS <= engine.max_model_len:
            _generate(engine, number, num_tokens)
    engine.reset_prefix_cache()
    engine.drain_cache_events()
    logger.info("warmed up in %.2f s", time.monotonic() - started_s)


def _generate(engine: Engine, number: int, num_prompt_tokens: int) -> None:
    sampling = SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True, seed=0)
    engine.submit(
        Leg(
            request_id=RequestId(f"warm-up-{number}"),
            attempt=1,
            choice_indices=(0,),
            prompt_token_ids=(number % engine.vocab_size,) * num_prompt_tokens,
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
    assert num_tokens == NUM_TOKENS
