"""What reading a prompt costs a router: tokenising and block keys, by length, in milliseconds of CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

from common.checkpoint import resolve_model
from common.kv.block_key import BlockKey, block_keys
from router.text import TextModel

LENGTHS = (2_000, 12_000, 128_000)
ROUNDS = 5
MAX_MODEL_LEN = 1_000_000
BLOCK_SIZE = 16
# English of the kind that chats are made of; repeated with a number, so that no two stretches are equal.
SENTENCE = "Paragraph {}: the router sends each request where the least work is left to do, and says why if asked. "


def print_tokenising_cost() -> None:
    text = TextModel.load(resolve_model("demo"))
    sample = "".join(SENTENCE.format(number) for number in range(8_000))
    num_sample_tokens = len(_encode(text, sample))
    for length in LENGTHS:
        prompt = sample[: len(sample) * length // num_sample_tokens]
        token_ids = tuple(_encode(text, prompt))
        tokenising = _median_ms(partial(_encode, text, prompt))
        keys = _median_ms(partial(block_keys, BlockKey(bytes(16)), token_ids, BLOCK_SIZE))
        print(f"{len(token_ids):7,} prompt tokens: tokenising {tokenising:.1f} ms, block keys {keys:.1f} ms of CPU")


def _encode(text: TextModel, prompt: str) -> Sequence[int]:
    return text.encode(prompt, max_model_len=MAX_MODEL_LEN)


def _median_ms(run: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        started_s = time.process_time()
        run()
        times.append(1000 * (time.process_time() - started_s))
    return statistics.median(times)
