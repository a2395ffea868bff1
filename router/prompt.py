"""Reads a prompt: token ids and the keys of its index points, off the event loop."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from common.errors import InvalidRequestError
from common.kv.block_key import BlockKey, block_keys, root_with_salt
from router.generation import Prompt, TokenPrompt
from router.text import TextWorkers
from router.worker_info import WorkerInfo

# Below this, hashing and checking take well under a millisecond, and a hop to a thread costs more.
MAX_INLINE_TOKENS = 1024
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPrompt:
    """`digest` is AnswerStart's in protos/inference.proto."""

    token_ids: tuple[int, ...]
    digest: bytes
    point_keys: tuple[BlockKey, ...]


class PromptReader:
    """Owned by the event loop; the work is done in the text threads."""

    def __init__(self, text: TextWorkers) -> None:
        self._text = text

    async def read(self, prompt: Prompt, worker: WorkerInfo, cache_salt: bytes) -> ReadPrompt:
        """Raises InvalidRequestError that names the prompt's field."""
        if isinstance(prompt, TokenPrompt):
            if len(prompt.token_ids) > worker.max_model_len:
                raise InvalidRequestError(
                    "prompt", f"has {len(prompt.token_ids)} tokens, the model's length is {worker.max_model_len}"
                )
            if len(prompt.token_ids) <= MAX_INLINE_TOKENS:
                return _checked(tuple(prompt.token_ids), worker, cache_salt)
        # One hop to a thread: in a second one, the keys' would cost as much as they do.
        return await self._text.run(lambda: self._read(prompt, worker, cache_salt))

    def _read(self, prompt: Prompt, worker: WorkerInfo, cache_salt: bytes) -> ReadPrompt:
        token_ids = self._text.token_ids(prompt, max_model_len=worker.max_model_len)
        return _checked(token_ids, worker, cache_salt)


def _checked(token_ids: tuple[int, ...], worker: WorkerInfo, cache_salt: bytes) -> ReadPrompt:
    if not token_ids:
        raise InvalidRequestError("prompt", "is empty: it must hold at least one token")
    if min(token_ids) < 0 or max(token_ids) >= worker.vocab_size:
        wrong = next(token_id for token_id in token_ids if not 0 <= token_id < worker.vocab_size)
        raise InvalidRequestError("prompt", f"token id {wrong} is not in 0 to {worker.vocab_size - 1}")
    keys = block_keys(root_with_salt(worker.key_root, cache_salt), token_ids, worker.block_size)
    blocks_per_point = worker.index_stride // worker.block_size
    digest = blake2b(np.asarray(token_ids, dtype="<u4").tobytes(), digest_size=DIGEST_BYTES).digest()
    return ReadPrompt(
        token_ids=token_ids, digest=digest, point_keys=tuple(keys[blocks_per_point - 1 :: blocks_per_point])
    )
