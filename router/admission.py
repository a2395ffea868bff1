"""Checks a command and turns its prompt into token ids: what every later step takes for granted."""

from __future__ import annotations

import dataclasses
import secrets
import time
from dataclasses import dataclass

from common.errors import InvalidRequestError, ModelNotFoundError
from common.kv.block_key import BlockKey
from common.request import RequestId, SamplingParams
from router.fleet import Fleet
from router.generation import GenerateCommand
from router.prompt import PromptReader
from router.resume_point import check_resume_point
from router.worker_info import WorkerInfo

# Of a caller's request id, so much is told to workers, with every token.
MAX_ID_CHARS = 64
# A later deadline is none: timers and messages need not hold every number.
MAX_DEADLINE_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedRequest:
    """A request that can be served. Times are monotonic seconds.

    `request_id` is the caller's with something of our own, for callers may use one twice, at once, and at several
    routers. `sampling` has its seed and max_tokens. `point_keys[i]` is the chained block key of the first
    (i + 1) * index_stride prompt tokens.
    """

    request_id: RequestId
    command: GenerateCommand
    worker: WorkerInfo
    prompt_token_ids: tuple[int, ...]
    prompt_digest: bytes
    sampling: SamplingParams
    cache_salt: bytes
    point_keys: tuple[BlockKey, ...]
    arrival_s: float
    deadline_s: float | None


class Admission:
    """Raises InvalidRequestError, ModelNotFoundError or UnavailableError; changes nothing."""

    def __init__(self, fleet: Fleet, prompts: PromptReader, model_name: str) -> None:
        self._fleet = fleet
        self._prompts = prompts
        self._model_name = model_name

    async def admit(self, command: GenerateCommand) -> AdmittedRequest:
        arrival_s = time.monotonic()
        if command.model and command.model != self._model_name:
            raise ModelNotFoundError(command.model, (self._model_name,))
        worker = self._fleet.reference()
        command.sampling.check_vocabulary(worker.vocab_size)
        cache_salt = encode_salt("" if command.tenant is None else command.tenant.name, command.cache_salt)
        prompt = await self._prompts.read(command.prompt, worker, cache_salt)
        sampling = _completed(command.sampling, len(prompt.token_ids), worker.max_model_len)
        if command.resume_from is not None:
            check_resume_point(command.resume_from, command.sampling, prompt.digest, worker.vocab_size)
            # They were told with the first tokens.
            sampling = dataclasses.replace(sampling, prompt_logprobs=None)
        return AdmittedRequest(
            request_id=_unique_id(command.request_id),
            command=command,
            worker=worker,
            prompt_token_ids=prompt.token_ids,
            prompt_digest=prompt.digest,
            sampling=sampling,
            cache_salt=cache_salt,
            point_keys=prompt.point_keys,
            arrival_s=arrival_s,
            deadline_s=_deadline_s(arrival_s, command.deadline_s),
        )


def encode_salt(tenant: str, client: str) -> bytes:
    """Tenant and client salt, each length-prefixed; empty when both are. A client sub-divides its tenant only."""
    if not tenant and not client:
        return b""
    parts = (tenant.encode(), client.encode())
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def _unique_id(request_id: str) -> RequestId:
    return RequestId(f"{request_id[:MAX_ID_CHARS]}-{secrets.token_hex(8)}")


def _deadline_s(arrival_s: float, left_s: float | None) -> float | None:
    return None if left_s is None or left_s > MAX_DEADLINE_S else arrival_s + left_s


def _completed(sampling: SamplingParams, num_prompt_tokens: int, max_model_len: int) -> SamplingParams:
    room = max_model_len - num_prompt_tokens
    if room < 1:
        raise InvalidRequestError(
            "prompt",
            f"has {num_prompt_tokens} tokens, but the model's length is {max_model_len}, the answer's first "
            "token included",
        )
    if sampling.max_tokens is not None and sampling.max_tokens > room:
        raise InvalidRequestError(
            "max_tokens",
            f"{sampling.max_tokens} and the prompt's {num_prompt_tokens} tokens are more than the model's "
            f"length {max_model_len}: at most {room}",
        )
    if sampling.min_tokens > room:
        raise InvalidRequestError("min_tokens", f"{sampling.min_tokens} is more than the {room} tokens left")
    return dataclasses.replace(
        sampling,
        max_tokens=room if sampling.max_tokens is None else sampling.max_tokens,
        seed=secrets.randbits(64) if sampling.seed is None else sampling.seed,
    )
