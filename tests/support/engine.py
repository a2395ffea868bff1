"""A runner without a model: tokens and KV are hashes, so that wrong KV or a wrong token shows at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from common.engine.engine import Engine
from common.engine.results import StepResult
from common.engine.sampled_token import SampledToken, SequenceResult
from common.engine.scheduler_config import SchedulerConfig
from common.engine.scheduler_output import ScheduledSequence
from common.kv.manager import BlockCopy, KVCacheManager
from common.kv.spec import KVCacheGroup, KVCacheSpec
from common.request import Leg, RequestId, SamplingParams

VOCAB_SIZE = 1000
EOS_TOKEN_ID = 999
KEY_ROOT = bytes(16)


def tiny_spec(block_size: int = 8, **changes: object) -> KVCacheSpec:
    """One group of one layer."""
    fields: dict[str, object] = {
        "group_id": 0,
        "layers": (0,),
        "num_kv_heads": 1,
        "head_dim": 1,
        "block_size": block_size,
        "dtype": "float32",
    }
    return KVCacheSpec(groups=(KVCacheGroup(**{**fields, **changes}),))  # type: ignore[arg-type]


class HashRunner:
    """Keeps, as a token's KV, a hash of its whole prefix, made from the KV before it: attention over a block that is
    not what it should be gives another hash, and so other tokens.

    The token drawn is a function of that hash, the seed and the choice: the same whatever the batch.
    """

    def __init__(self, *, num_blocks: int, block_size: int) -> None:
        self.slots: npt.NDArray[np.uint64] = np.zeros(num_blocks * block_size, dtype=np.uint64)
        self.block_size = block_size
        self.before_execute: Callable[[Sequence[ScheduledSequence]], None] = lambda scheduled: None
        self.after_execute: Callable[[ScheduledSequence, SequenceResult], SequenceResult] = lambda entry, result: result

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        for source, destination in copies:
            self._block(destination)[:] = self._block(source)

    def execute(self, scheduled: Sequence[ScheduledSequence]) -> list[SequenceResult]:
        self.before_execute(scheduled)
        return [self.after_execute(entry, self._compute(entry)) for entry in scheduled]

    def block_bytes(self, block_id: int) -> bytes:
        return self._block(block_id).tobytes()

    def write_block_bytes(self, block_id: int, data: bytes) -> None:
        self._block(block_id)[:] = np.frombuffer(data, dtype=np.uint64)

    def _block(self, block_id: int) -> npt.NDArray[np.uint64]:
        return self.slots[block_id * self.block_size : (block_id + 1) * self.block_size]

    def _compute(self, entry: ScheduledSequence) -> SequenceResult:
        sequence = entry.sequence
        end = entry.start + entry.num_tokens
        tokens = sequence.token_ids[entry.start : end].tolist()
        for position, token_id in zip(range(entry.start, end), tokens, strict=True):
            before = int(self.slots[self._slot(entry, position - 1)]) if position else 0
            self.slots[self._slot(entry, position)] = prefix_hash(before, token_id)
        if not entry.samples:
            return SequenceResult()
        state = int(self.slots[self._slot(entry, end - 1)])
        seed = sequence.sampling.seed or 0
        return SequenceResult(
            tuple(SampledToken(hash_token(state, seed, choice_index)) for choice_index in sequence.choice_indices)
        )

    def _slot(self, entry: ScheduledSequence, position: int) -> int:
        return entry.sequence.table.block_id(position // self.block_size) * self.block_size + position % self.block_size


def prefix_hash(before: int, token_id: int) -> int:
    digest = hashlib.blake2b(before.to_bytes(8, "little") + token_id.to_bytes(4, "little"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def hash_token(state: int, seed: int, choice_index: int) -> int:
    mixed = hashlib.blake2b(f"{state} {seed} {choice_index}".encode(), digest_size=8).digest()
    return int.from_bytes(mixed, "little") % VOCAB_SIZE


def expected_outputs(leg: Leg, choice_index: int, max_model_len: int) -> list[int]:
    """All outputs of a choice, as undisturbed computing gives them; those that the leg brings come first."""
    state = 0
    for token_id in (*leg.prompt_token_ids, *leg.output_token_ids):
        state = prefix_hash(state, token_id)
    outputs = list(leg.output_token_ids)
    sampling = leg.sampling
    limit = max_model_len - len(leg.prompt_token_ids)
    if sampling.max_tokens is not None:
        limit = min(limit, sampling.max_tokens)
    while True:
        token_id = hash_token(state, sampling.seed or 0, choice_index)
        outputs.append(token_id)
        stops = token_id in sampling.stop_token_ids or (token_id == EOS_TOKEN_ID and not sampling.ignore_eos)
        if len(outputs) >= limit or stops:
            return outputs
        state = prefix_hash(state, token_id)


class HashEngine:
    """An engine on a HashRunner, its results kept by choice, and its clock in hand."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 8,
        config: SchedulerConfig | None = None,
        hand_back: bool = False,
        max_model_len: int | None = None,
        num_host_blocks: int = 0,
    ) -> None:
        self.runner = HashRunner(num_blocks=num_blocks + num_host_blocks, block_size=block_size)
        self.kv = KVCacheManager(
            spec=tiny_spec(block_size), num_blocks=num_blocks, key_root=KEY_ROOT, num_host_blocks=num_host_blocks
        )
        self.max_model_len = max_model_len or num_blocks * block_size
        self.now = 0.0
        self.engine = Engine(
            runner=self.runner,
            kv=self.kv,
            config=config or SchedulerConfig(max_num_seqs=16, max_num_batched_tokens=64, max_num_waiting=32),
            eos_token_ids=frozenset({EOS_TOKEN_ID}),
            max_model_len=self.max_model_len,
            vocab_size=VOCAB_SIZE,
            hand_back_when_preempted=hand_back,
            clock=lambda: self.now,
        )
        self.outputs: dict[tuple[RequestId, int], list[int]] = {}
        self.steps: list[StepResult] = []

    def step(self) -> StepResult:
        """One step, with the books checked after it. Token indices must have no gap."""
        result = self.engine.step()
        self.engine.check_integrity()
        self.steps.append(result)
        for output in result.tokens:
            outputs = self.outputs.setdefault((output.request_id, output.choice_index), [])
            if not outputs and output.first_index:
                outputs.extend([-1] * output.first_index)  # drawn elsewhere
            assert output.first_index == len(outputs)
            outputs.extend(output.token_ids)
        return result

    def run(self, max_steps: int = 1000) -> None:
        """Steps until nothing is left to do."""
        for _ in range(max_steps):
            if not self.engine.has_work():
                return
            self.step()
        raise AssertionError(f"there is work left after {max_steps} steps")

    def results(self, kind: str) -> list[object]:
        """All entries of one list of the step results, in order."""
        return [entry for step in self.steps for entry in getattr(step, kind)]


def make_leg(
    prompt: Sequence[int],
    *,
    request_id: str = "r",
    attempt: int = 1,
    choices: int | tuple[int, ...] = 1,
    outputs: Sequence[int] = (),
    priority: int = 0,
    deadline_s: float | None = None,
    cache_salt: bytes = b"",
    **sampling: object,
) -> Leg:
    """A leg with a seed; `sampling` are fields of SamplingParams."""
    choice_indices = tuple(range(choices)) if isinstance(choices, int) else choices
    fields = {"seed": 7, "temperature": 0.0, "max_tokens": 8, **sampling}
    return Leg(
        request_id=RequestId(request_id),
        attempt=attempt,
        choice_indices=choice_indices,
        prompt_token_ids=tuple(prompt),
        output_token_ids=tuple(outputs),
        sampling=SamplingParams(n=len(choice_indices), **fields),  # type: ignore[arg-type]
        priority=priority,
        deadline_s=deadline_s,
        cache_salt=cache_salt,
    )
