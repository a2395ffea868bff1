"""Legs between wire and domain. Deadlines travel as milliseconds left, and live as monotonic seconds."""

from __future__ import annotations

import time

from common.errors import InvalidRequestError
from common.net.sampling_codec import decode_sampling, encode_sampling
from common.request import Leg, RequestId
from protos import worker_pb2 as pb


def encode_leg(leg: Leg) -> pb.Leg:
    message = pb.Leg(
        request_id=leg.request_id,
        attempt=leg.attempt,
        choice_indices=leg.choice_indices,
        prompt_token_ids=leg.prompt_token_ids,
        output_token_ids=leg.output_token_ids,
        sampling=encode_sampling(leg.sampling),
        priority=leg.priority,
        cache_salt=leg.cache_salt,
        canary=leg.canary,
        expected_cached_tokens=leg.expected_cached_tokens,
    )
    if leg.deadline_s is not None:
        message.deadline_ms = max(0, int((leg.deadline_s - time.monotonic()) * 1000))
    return message


def decode_leg(message: pb.Leg) -> Leg:
    """Raises InvalidRequestError that names the field."""
    _check(message)
    return Leg(
        request_id=RequestId(message.request_id),
        attempt=message.attempt,
        choice_indices=tuple(message.choice_indices),
        prompt_token_ids=tuple(message.prompt_token_ids),
        output_token_ids=tuple(message.output_token_ids),
        sampling=decode_sampling(message.sampling),
        priority=message.priority,
        deadline_s=time.monotonic() + message.deadline_ms / 1000 if message.HasField("deadline_ms") else None,
        cache_salt=message.cache_salt,
        canary=message.canary,
        expected_cached_tokens=message.expected_cached_tokens,
    )


def _check(message: pb.Leg) -> None:
    """What our routers take for granted."""
    indices = message.choice_indices
    if not indices or len(set(indices)) != len(indices):
        raise InvalidRequestError("choice_indices", "must name one choice or several, each once")
    if len(indices) > 1 and message.output_token_ids:
        raise InvalidRequestError("output_token_ids", f"can't go on with {len(indices)} choices in one leg")
    if not message.sampling.HasField("seed"):
        raise InvalidRequestError("seed", "is missing: the router draws one")
