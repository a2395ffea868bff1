"""Sampling parameters, log probabilities and finish reasons between wire and domain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from common.request import FinishReason, SamplingParams, TokenLogprob, TopLogprob
from protos import sampling_pb2 as pb

# A model without defaults of its own.
NEUTRAL = SamplingParams()

_FINISH_TO_WIRE = {
    None: pb.FINISH_REASON_UNSPECIFIED,
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
    FinishReason.CANCELLED: pb.FINISH_REASON_CANCELLED,
}
_FINISH_FROM_WIRE = {wire: reason for reason, wire in _FINISH_TO_WIRE.items()}


def encode_finish_reason(reason: FinishReason | None) -> pb.FinishReason:
    return _FINISH_TO_WIRE[reason]


def decode_finish_reason(reason: pb.FinishReason) -> FinishReason | None:
    return _FINISH_FROM_WIRE[reason]


def encode_sampling(params: SamplingParams) -> pb.SamplingParams:
    return pb.SamplingParams(
        max_tokens=params.max_tokens,
        min_tokens=params.min_tokens,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        min_p=params.min_p,
        seed=params.seed,
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        logit_bias=params.logit_bias,
        stop=params.stop,
        stop_token_ids=params.stop_token_ids,
        ignore_eos=params.ignore_eos,
        n=params.n,
        logprobs=params.logprobs,
        prompt_logprobs=params.prompt_logprobs,
    )


def decode_sampling(message: pb.SamplingParams, defaults: SamplingParams = NEUTRAL) -> SamplingParams:
    """`defaults` says what an absent temperature, top_p, top_k, min_p or repetition_penalty is.

    Raises InvalidRequestError that names the field.
    """

    def given(name: str, default: Any) -> Any:
        return getattr(message, name) if message.HasField(name) else default

    return SamplingParams(
        max_tokens=given("max_tokens", None),
        min_tokens=message.min_tokens,
        temperature=given("temperature", defaults.temperature),
        top_p=given("top_p", defaults.top_p),
        top_k=given("top_k", defaults.top_k),
        min_p=given("min_p", defaults.min_p),
        seed=given("seed", None),
        repetition_penalty=given("repetition_penalty", defaults.repetition_penalty),
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        logit_bias=dict(message.logit_bias),
        stop=tuple(message.stop),
        stop_token_ids=tuple(message.stop_token_ids),
        ignore_eos=message.ignore_eos,
        n=given("n", 1),
        logprobs=given("logprobs", None),
        prompt_logprobs=given("prompt_logprobs", None),
    )


def encode_logprobs(logprobs: Iterable[TokenLogprob]) -> list[pb.TokenLogprob]:
    return [
        pb.TokenLogprob(
            token_id=entry.token_id,
            logprob=entry.logprob,
            rank=entry.rank,
            top=[pb.TopLogprob(token_id=top.token_id, logprob=top.logprob) for top in entry.top],
        )
        for entry in logprobs
    ]


def decode_logprobs(messages: Iterable[pb.TokenLogprob]) -> tuple[TokenLogprob, ...]:
    return tuple(
        TokenLogprob(
            token_id=message.token_id,
            logprob=message.logprob,
            rank=message.rank,
            top=tuple(TopLogprob(token_id=top.token_id, logprob=top.logprob) for top in message.top),
        )
        for message in messages
    )
