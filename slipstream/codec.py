"""Between the client's plain Python and the wire, for both clients. Keeps no state, opens nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from common.errors import InvalidRequestError
from common.net.sampling_codec import decode_finish_reason, decode_logprobs
from protos import admin_pb2, inference_pb2, layout_pb2
from router.generation import ChoiceDelta, ModelCard, RouteHint, RouteTaken, Timings, Usage
from slipstream.fleet_status import FleetStatus, IntegrityReport, RefusedWorker, RouterStatus, WorkerLoad, WorkerStatus
from slipstream.generation import GenerateOptions, GenerationDelta

SCALAR_SAMPLING_FIELDS = (
    "max_tokens",
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "ignore_eos",
    "n",
    "logprobs",
    "prompt_logprobs",
)
COUNTS = ("top_k", "seed", "n", "logprobs", "prompt_logprobs", "max_tokens", "min_tokens")
MAX_SHOWN = 60  # characters of a value in an error's message
REPEATED_SAMPLING_FIELDS = ("stop", "stop_token_ids")
REQUEST_FIELDS = (
    "model",
    "priority",
    "deadline_ms",
    "ttft_slo_ms",
    "tpot_slo_ms",
    "request_id",
    "cache_salt",
    "return_prompt_token_ids",
)
CHAT_FIELDS = ("add_generation_prompt", "tools", "template_kwargs")

PlainT = TypeVar("PlainT")


def encode_request(prompt: str | Sequence[int] | None, options: GenerateOptions) -> inference_pb2.GenerateRequest:
    """The request on the wire. What a value may be is the server's to say; what the wire can't carry is refused here.

    Raises InvalidRequestError that names the field, and TypeError for an option that does not exist.
    """
    unknown = set(options) - set(GenerateOptions.__annotations__)
    if unknown:
        raise TypeError(f"unknown option {min(unknown)!r}; known: {', '.join(GenerateOptions.__annotations__)}")
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    request = inference_pb2.GenerateRequest()
    _encode_prompt(request, prompt, given)
    for name in REQUEST_FIELDS:
        if name in given:
            _set(name, setattr, request, name, given[name])
    for name in SCALAR_SAMPLING_FIELDS:
        if name in given:
            _set(name, setattr, request.sampling, name, given[name])
    for name in REPEATED_SAMPLING_FIELDS:
        if name in given:
            if isinstance(given[name], str):
                raise InvalidRequestError(name, "must be a list, is a string")
            _set(name, getattr(request.sampling, name).extend, given[name])
    if "logit_bias" in given:
        _set("logit_bias", request.sampling.logit_bias.update, given["logit_bias"])
    if "route" in given:
        request.route.CopyFrom(_encode_route(given["route"]))
    return request


def decode_response(response: inference_pb2.GenerateResponse, num_resumes: int = 0) -> GenerationDelta:
    return GenerationDelta(
        request_id=response.request_id,
        choices=tuple(_decode_choice(choice) for choice in response.choices),
        prompt_token_ids=tuple(response.prompt_token_ids) or None,
        prompt_logprobs=decode_logprobs(response.prompt_logprobs) if response.prompt_logprobs else None,
        usage=_plain(Usage, response.usage) if response.HasField("usage") else None,
        timings=_decode_timings(response.timings) if response.HasField("timings") else None,
        route=_decode_route(response.route) if response.HasField("route") else None,
        num_resumes=num_resumes,
    )


def decode_models(response: inference_pb2.ListModelsResponse) -> tuple[ModelCard, ...]:
    return tuple(_plain(ModelCard, card) for card in response.models)


def decode_status(response: admin_pb2.StatusResponse) -> FleetStatus:
    return FleetStatus(
        workers=tuple(_decode_worker(worker) for worker in response.workers),
        router=_plain(RouterStatus, response.router) if response.HasField("router") else None,
        refused_workers=tuple(_plain(RefusedWorker, worker) for worker in response.refused_workers),
    )


def decode_integrity(response: admin_pb2.CheckIntegrityResponse) -> IntegrityReport:
    return _plain(IntegrityReport, response)


def _encode_prompt(
    request: inference_pb2.GenerateRequest, prompt: str | Sequence[int] | None, given: Mapping[str, Any]
) -> None:
    messages: Sequence[Mapping[str, Any]] | None = given.get("messages")
    if (prompt is None) == (messages is None):
        raise InvalidRequestError("prompt", "give either a prompt or messages")
    if messages is not None:
        _encode_chat(request.chat, messages, given)
        return
    for name in CHAT_FIELDS:
        if name in given:
            raise InvalidRequestError(name, "goes with messages only")
    if isinstance(prompt, str):
        _set("prompt", setattr, request, "text", prompt)
    else:
        request.token_ids.SetInParent()  # an empty list is token ids too, and the server's to refuse
        try:
            request.token_ids.ids.extend(prompt)
        except TypeError:
            raise InvalidRequestError(
                "prompt", f"must be one text, or a list of token ids, is {_shown(prompt)}"
            ) from None
        except (ValueError, OverflowError) as error:
            raise InvalidRequestError("prompt", f"can't be sent: {error}") from None


def _encode_chat(
    chat: inference_pb2.ChatPrompt, messages: Sequence[Mapping[str, Any]], given: Mapping[str, Any]
) -> None:
    chat.SetInParent()
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise InvalidRequestError("messages", f"must be a list of messages, is {_shown(messages)}")
    for index, message in enumerate(messages):
        name = f"messages[{index}]"
        if not isinstance(message, Mapping):
            raise InvalidRequestError(name, f"must have role and content, is {message!r}")
        extra = {key: value for key, value in message.items() if key not in ("role", "content")}
        content = message.get("content")
        if content is not None and not isinstance(content, str):  # a list of parts
            extra["content"] = content
        wire = chat.messages.add()
        _set(f"{name}.role", setattr, wire, "role", message.get("role", ""))
        _set(f"{name}.content", setattr, wire, "content", content if isinstance(content, str) else "")
        wire.extra_json = _json(name, extra) if extra else ""
    if "add_generation_prompt" in given:
        _set("add_generation_prompt", setattr, chat, "add_generation_prompt", given["add_generation_prompt"])
    if "tools" in given:
        chat.tools_json = _json("tools", given["tools"])
    if "template_kwargs" in given:
        chat.template_kwargs_json = _json("template_kwargs", given["template_kwargs"])


def _encode_route(route: RouteHint | Mapping[str, Any]) -> inference_pb2.RouteHint:
    known = tuple(one.name for one in fields(RouteHint))
    if isinstance(route, RouteHint):
        route = {name: getattr(route, name) for name in known}
    if not isinstance(route, Mapping):
        raise InvalidRequestError("route", f"must be a RouteHint, or a mapping of {', '.join(known)}, is {route!r}")
    wire = inference_pb2.RouteHint()
    for name, value in route.items():
        if name not in known:
            raise InvalidRequestError("route", f"has no {name!r}; known: {', '.join(known)}")
        if value is None:
            continue
        if name != "exclude":
            _set(f"route.{name}", setattr, wire, name, value)
        elif isinstance(value, str):
            raise InvalidRequestError("route.exclude", "must be a list, is a string")
        else:
            _set("route.exclude", wire.exclude.extend, value)
    return wire


def _decode_choice(choice: inference_pb2.ChoiceDelta) -> ChoiceDelta:
    return ChoiceDelta(
        index=choice.index,
        first_index=choice.first_index,
        token_ids=tuple(choice.token_ids),
        text=choice.text,
        logprobs=decode_logprobs(choice.logprobs) if choice.logprobs else (),
        finish_reason=decode_finish_reason(choice.finish_reason),
        stop_token_id=choice.stop_token_id if choice.HasField("stop_token_id") else None,
        stop_string=choice.stop_string if choice.HasField("stop_string") else None,
    )


def _decode_timings(timings: inference_pb2.Timings) -> Timings:
    return Timings(
        queue_s=timings.queue_ms / 1000,
        prefill_s=timings.prefill_ms / 1000,
        transfer_s=timings.transfer_ms / 1000,
        ttft_s=timings.ttft_ms / 1000,
        token_1_to_2_s=timings.token_1_to_2_ms / 1000,
        total_s=timings.total_ms / 1000,
    )


def _decode_route(route: inference_pb2.RouteTaken) -> RouteTaken:
    return RouteTaken(
        prefill_worker=route.prefill_worker or None,
        decode_worker=route.decode_worker or None,
        attempts=route.attempts,
        transferred_bytes=route.transferred_bytes,
        transferred_blocks=route.transferred_blocks,
        decode_cached_blocks=route.decode_cached_blocks,
        preemptions=route.preemptions,
    )


def _decode_worker(worker: admin_pb2.WorkerStatus) -> WorkerStatus:
    return WorkerStatus(
        worker_id=worker.worker_id,
        incarnation=worker.incarnation,
        role=layout_pb2.Role.Name(worker.role).removeprefix("ROLE_").lower(),
        state=layout_pb2.WorkerState.Name(worker.state).removeprefix("WORKER_STATE_").lower(),
        model=worker.model,
        address=worker.address,
        reachable=worker.reachable,
        load=_plain(WorkerLoad, worker.load),
        backend=worker.backend,
        uptime_s=worker.uptime_s,
    )


def _plain(kind: type[PlainT], message: Any) -> PlainT:
    """A dataclass from a message whose fields have the same names."""
    return kind(**{one.name: getattr(message, one.name) for one in fields(kind)})  # type: ignore[arg-type]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _set(name: str, apply: Callable[..., Any], *arguments: Any) -> None:
    if isinstance(arguments[-1], bool) and name in COUNTS:
        raise InvalidRequestError(name, f"must be a number, is {arguments[-1]}")
    try:
        apply(*arguments)
    except (TypeError, ValueError, OverflowError) as error:  # UnicodeEncodeError is a ValueError
        raise InvalidRequestError(name, f"can't be sent: {error}") from None


def _json(name: str, value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(name, f"must be JSON: {error}") from None
