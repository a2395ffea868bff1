"""The fields that both APIs share: how tokens are drawn, and how the request is scheduled and routed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from common.request import SamplingParams
from router.generation import RouteHint
from router.http.fields import Fields

# Of OpenAI's and vLLM's APIs: who asks, how it is billed, kept or made faster; or without effect on text.
HARMLESS_FIELDS = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prediction",
    "request_id",
    "detokenize",
    "spaces_between_special_tokens",
    "include_reasoning",
)


# A model without defaults of its own.
NEUTRAL = SamplingParams()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """How urgent a request is, and where it should run. Durations are seconds."""

    priority: int = 0
    deadline_s: float | None = None
    ttft_slo_s: float | None = None
    tpot_slo_s: float | None = None
    cache_salt: str = ""
    route: RouteHint = field(default_factory=RouteHint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Streaming:
    """Whether the answer comes piece by piece, with the usage at its end."""

    stream: bool = False
    include_usage: bool = False


def decode_sampling(
    fields: Fields, defaults: SamplingParams, *, max_tokens: int | None, logprobs: int | None
) -> SamplingParams:
    """`max_tokens` and `logprobs` have other names and defaults in each API, so the caller reads them.

    `defaults` are the model's, for what is absent or null.
    """
    given: dict[str, Any] = {
        "temperature": fields.number("temperature"),
        "top_p": fields.number("top_p"),
        "top_k": _top_k(fields),
        "min_p": fields.number("min_p"),
        "min_tokens": fields.integer("min_tokens"),
        "seed": _seed(fields),
        "repetition_penalty": fields.number("repetition_penalty"),
        "presence_penalty": fields.number("presence_penalty"),
        "frequency_penalty": fields.number("frequency_penalty"),
        "ignore_eos": fields.flag("ignore_eos"),
        "n": fields.integer("n"),
        "prompt_logprobs": fields.integer("prompt_logprobs"),
    }
    return replace(
        defaults,
        max_tokens=max_tokens,
        logprobs=logprobs,
        logit_bias=_logit_bias(fields),
        stop=_stop(fields),
        stop_token_ids=fields.integers("stop_token_ids"),
        **{name: value for name, value in given.items() if value is not None},
    )


def decode_scheduling(fields: Fields) -> Scheduling:
    priority = fields.integer("priority") or 0
    if not -(2**31) <= priority < 2**31:
        raise fields.wrong("priority", "must fit in 32 bits", priority)
    return Scheduling(
        priority=priority,
        deadline_s=_duration_s(fields, "deadline_ms"),
        ttft_slo_s=_duration_s(fields, "ttft_slo_ms"),
        tpot_slo_s=_duration_s(fields, "tpot_slo_ms"),
        cache_salt=fields.text("cache_salt") or "",
        route=_route(fields.object("route")),
    )


def decode_streaming(fields: Fields) -> Streaming:
    stream = fields.flag("stream") or False
    options = fields.object("stream_options")
    if options is None:
        return Streaming(stream=stream)
    if not stream:
        raise fields.refused("stream_options", "is for stream: true only")
    include_usage = options.flag("include_usage") or False
    options.ignore("include_obfuscation")
    options.end()
    return Streaming(stream=stream, include_usage=include_usage)


def refuse_unsupported(fields: Fields) -> None:
    """Fields that would change the answer and are not built are refused by name, unless they ask for nothing."""
    response_format = fields.object("response_format")
    if response_format is not None and response_format.raw("type") != "text":
        raise fields.wrong("response_format", "only type text is supported", response_format.raw("type"))
    if fields.flag("use_beam_search"):
        raise fields.refused("use_beam_search", "beam search is not supported")
    if fields.flag("include_stop_str_in_output"):
        raise fields.refused("include_stop_str_in_output", "stop strings are never part of the answer")
    if fields.flag("skip_special_tokens") is False:
        raise fields.refused("skip_special_tokens", "special tokens are never part of the text; see return_token_ids")
    if fields.flag("add_special_tokens") is False:
        raise fields.refused("add_special_tokens", "send token ids as the prompt instead")
    for name in (
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "structured_outputs",
        "logits_processors",
        "bad_words",
        "truncate_prompt_tokens",
        "allowed_token_ids",
        "kv_transfer_params",
        "return_tokens_as_token_ids",
        "thinking_token_budget",
        "vllm_xargs",
    ):
        if fields.raw(name):
            raise fields.refused(name, "is not supported")
    if fields.number("length_penalty") not in (None, 1.0):
        raise fields.refused("length_penalty", "is for beam search, which is not supported")
    fields.ignore(*HARMLESS_FIELDS)


def _top_k(fields: Fields) -> int | None:
    top_k = fields.integer("top_k")
    return 0 if top_k == -1 else top_k  # vLLM's spelling of "all"


def _seed(fields: Fields) -> int | None:
    seed = fields.integer("seed", limit=2**64)
    return None if seed is None else seed % 2**64  # two's complement, as signed 64-bit seeds are sent


def _stop(fields: Fields) -> tuple[str, ...]:
    value = fields.raw("stop")
    if isinstance(value, str):
        return (value,)
    return fields.texts("stop")


def _logit_bias(fields: Fields) -> dict[int, float]:
    biases: dict[int, float] = {}
    for key, value in (fields.mapping("logit_bias") or {}).items():
        if not key.isdecimal() or len(key) > 10:
            raise fields.wrong("logit_bias", "keys must be token ids", key)
        biases[int(key)] = fields.to_number("logit_bias", value)
    return biases


def _duration_s(fields: Fields, name: str) -> float | None:
    duration_ms = fields.number(name)
    if duration_ms is not None and duration_ms <= 0:
        raise fields.wrong(name, "must be above 0 milliseconds", duration_ms)
    return None if duration_ms is None else duration_ms / 1000.0


def _route(fields: Fields | None) -> RouteHint:
    if fields is None:
        return RouteHint()
    hint = RouteHint(
        prefill_worker=fields.text("prefill_worker") or None,
        decode_worker=fields.text("decode_worker") or None,
        decode_only=fields.flag("decode_only") or False,
        exclude=fields.texts("exclude"),
    )
    fields.end()
    return hint
