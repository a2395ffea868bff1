"""The OpenAI HTTP API as a starlette application over `router.generation.Generator`."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from common.errors import ModelNotFoundError
from router.access.authenticator import Authenticator, Caller, NoAuthenticator
from router.access.tenant import Tenant
from router.access.tenant_limits import TenantLimits
from router.generation import Generator, ModelCard, TokenPrompt
from router.http.chat_answer import ChatAnswer
from router.http.chat_request import ChatRequest
from router.http.completion_answer import CompletionAnswer
from router.http.completion_request import CompletionRequest
from router.http.credentials import credentials_of
from router.http.http_answer import HttpAnswer
from router.http.http_error import HttpError, http_error
from router.http.json_body import read_json
from router.http.unknown_fields import UnknownFields
from router.metrics import RouterMetrics
from router.text.text_model import TextModel

DEFAULT_MAX_BODY_BYTES = 32 * 1024 * 1024
# A client that reads nothing for this long is cancelled.
DEFAULT_STALL_TIMEOUT_S = 60.0

Readiness = Callable[[], str | None]


def create_app(
    generator: Generator,
    *,
    text: TextModel,
    metrics: RouterMetrics,
    readiness: Readiness,
    authenticator: Authenticator | None = None,
    limits: TenantLimits | None = None,
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
    stall_timeout_s: float = DEFAULT_STALL_TIMEOUT_S,
) -> Starlette:
    """`readiness` says why the service is not ready, or None when it is. Requests are the generator's to count.

    `authenticator` says who calls; `limits` are asked before a request's body is read. Health and readiness are for
    everyone.
    """
    entrance = _Entrance(authenticator or NoAuthenticator(), limits or TenantLimits())
    api = _Api(generator, text, metrics, readiness, entrance, max_body_bytes, stall_timeout_s)
    routes = [
        Route("/v1/completions", _Endpoint(api.completions), methods=["POST"]),
        Route("/v1/chat/completions", _Endpoint(api.chat_completions), methods=["POST"]),
        Route("/v1/models", _Endpoint(api.list_models), methods=["GET"]),
        Route("/v1/models/{model:path}", _Endpoint(api.get_model), methods=["GET"]),
        Route("/health", _Endpoint(api.health), methods=["GET"]),
        Route("/ready", _Endpoint(api.ready), methods=["GET"]),
        Route("/metrics", _Endpoint(api.render_metrics), methods=["GET"]),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _routing_error})


class _Api:
    """The handlers. Each returns an ASGI response or raises; `_Endpoint` turns errors into answers."""

    def __init__(
        self,
        generator: Generator,
        text: TextModel,
        metrics: RouterMetrics,
        readiness: Readiness,
        entrance: _Entrance,
        max_body_bytes: int,
        stall_timeout_s: float,
    ) -> None:
        self._generator = generator
        self._text = text
        self._metrics = metrics
        self._readiness = readiness
        self._entrance = entrance
        self._max_body_bytes = max_body_bytes
        self._stall_timeout_s = stall_timeout_s
        self._unknown_fields = UnknownFields()

    async def completions(self, request: Request) -> ASGIApp:
        tenant = self._entrance.admit(request)
        decode = partial(CompletionRequest.decode, sampling_defaults=self._text.sampling_defaults)
        decoded = await read_json(request, decode, max_body_bytes=self._max_body_bytes)
        self._unknown_fields.tell(decoded.unknown_fields)
        shape = CompletionAnswer(
            decoded,
            id=f"cmpl-{uuid.uuid4().hex}",
            model=self._model_name(decoded.model),
            created_s=int(time.time()),
            text=self._text,
            echo_texts=await asyncio.to_thread(self._prompt_texts, decoded) if decoded.echo else (),
        )
        return HttpAnswer(self._generator, shape, tenant=tenant, stall_timeout_s=self._stall_timeout_s)

    async def chat_completions(self, request: Request) -> ASGIApp:
        tenant = self._entrance.admit(request)
        decode = partial(ChatRequest.decode, sampling_defaults=self._text.sampling_defaults)
        decoded = await read_json(request, decode, max_body_bytes=self._max_body_bytes)
        self._unknown_fields.tell(decoded.unknown_fields)
        shape = ChatAnswer(
            decoded,
            id=f"chatcmpl-{uuid.uuid4().hex}",
            model=self._model_name(decoded.model),
            created_s=int(time.time()),
            text=self._text,
        )
        return HttpAnswer(self._generator, shape, tenant=tenant, stall_timeout_s=self._stall_timeout_s)

    async def list_models(self, request: Request) -> ASGIApp:
        self._entrance.identify(request)
        cards = [_model_json(card) for card in self._generator.models()]
        return JSONResponse({"object": "list", "data": cards})

    async def get_model(self, request: Request) -> ASGIApp:
        self._entrance.identify(request)
        name = request.path_params["model"]
        for card in self._generator.models():
            if card.id == name:
                return JSONResponse(_model_json(card))
        raise self._not_found(name)

    async def health(self, request: Request) -> ASGIApp:
        """Liveness: this process answers. It depends on no peer."""
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> ASGIApp:
        reason = self._readiness()
        if reason is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready", "reason": reason}, status_code=503)

    async def render_metrics(self, request: Request) -> ASGIApp:
        self._entrance.identify(request).check_operator()
        content, content_type = await asyncio.to_thread(self._metrics.render)
        return Response(content, headers={"content-type": content_type})

    def _model_name(self, asked: str) -> str:
        cards = self._generator.models()
        return asked or (cards[0].id if cards else "")

    def _not_found(self, name: str) -> ModelNotFoundError:
        return ModelNotFoundError(name, tuple(card.id for card in self._generator.models()))

    def _prompt_texts(self, request: CompletionRequest) -> tuple[str, ...]:
        return tuple(
            self._decode_prompt(prompt) if isinstance(prompt, TokenPrompt) else prompt.text
            for prompt in request.prompts
        )

    def _decode_prompt(self, prompt: TokenPrompt) -> str:
        return self._text.decode(prompt.token_ids, skip_special_tokens=False)


class _Entrance:
    """Raises the errors of `Authenticator` and of `TenantLimits`."""

    def __init__(self, authenticator: Authenticator, limits: TenantLimits) -> None:
        self._authenticator = authenticator
        self._limits = limits

    def identify(self, request: Request) -> Caller:
        return self._authenticator.identify(credentials_of(request))

    def admit(self, request: Request) -> Tenant | None:
        """Whose request it is, when it has a chance of being let in: else its body is not even read."""
        tenant = self.identify(request).tenant
        self._limits.check(tenant)
        return tenant


class _Endpoint:
    """One route as an ASGI application, which a Route takes as it is: no wrapper between the client and the answer."""

    def __init__(self, handler: Callable[[Request], Awaitable[ASGIApp]]) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._handler(Request(scope, receive, send))
        except Exception as error:
            response = _error_response(http_error(error))
        await response(scope, receive, send)


async def _routing_error(request: Request, error: Exception) -> Response:
    """No such path, or a method that it does not have."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return _error_response(
        HttpError(
            status=error.status_code, message=message, type="invalid_request_error", headers=dict(error.headers or {})
        )
    )


def _error_response(error: HttpError) -> Response:
    return Response(
        error.encode(), status_code=error.status, headers={**error.headers, "content-type": "application/json"}
    )


def _model_json(card: ModelCard) -> dict[str, object]:
    told = {} if card.max_model_len is None else {"max_model_len": card.max_model_len}
    return {"id": card.id, "object": "model", "created": card.created_s, "owned_by": "slipstream", **told}
