"""Errors in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}` and the HTTP status of each."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from typing import Any

from common.errors import DrainingError, OverloadedError, SlipstreamError, Status

logger = logging.getLogger(__name__)


class HttpError(Exception):
    """An answer that is an error. `status` is the HTTP status code, `param` the request's field."""

    def __init__(
        self,
        *,
        status: int,
        message: str,
        type: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def encode(self) -> bytes:
        return json.dumps(self.body(), ensure_ascii=False).encode("utf-8", "replace")


# gRPC status -> HTTP status, OpenAI's error type, code. 499 is nginx's "client closed request".
_SHAPES: dict[Status, tuple[int, str, str | None]] = {
    Status.INVALID_ARGUMENT: (400, "invalid_request_error", None),
    Status.NOT_FOUND: (404, "invalid_request_error", "model_not_found"),
    Status.UNAUTHENTICATED: (401, "authentication_error", "invalid_api_key"),
    Status.PERMISSION_DENIED: (403, "permission_error", "permission_denied"),
    Status.RESOURCE_EXHAUSTED: (429, "rate_limit_error", "rate_limit_exceeded"),
    Status.CANCELLED: (499, "cancelled_error", "request_cancelled"),
    Status.DEADLINE_EXCEEDED: (504, "timeout_error", "deadline_exceeded"),
    Status.UNAVAILABLE: (503, "server_error", "unavailable"),
    Status.ABORTED: (503, "server_error", "aborted"),
}
_INTERNAL = (500, "server_error", "internal_error")


def http_error(error: Exception) -> HttpError:
    """The answer to an exception. What is not one of ours is logged whole and told as an internal error only."""
    if isinstance(error, HttpError):
        return error
    if not isinstance(error, SlipstreamError):
        logger.error("a request failed unexpectedly", exc_info=error)
        return HttpError(status=500, message="internal error", type="server_error", code="internal_error")
    status, kind, code = _SHAPES.get(error.status, _INTERNAL)
    headers: dict[str, str] = {}
    if isinstance(error, OverloadedError):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    elif status == 401:
        headers["www-authenticate"] = "Bearer"
    elif status == 503:
        headers["retry-after"] = "1"
        if isinstance(error, DrainingError):
            headers["connection"] = "close"  # the next request on it would be refused too
    elif status == 504:
        # Clients repeat what ends in 5xx; this caller's time is spent, and the work would only be done twice.
        headers["x-should-retry"] = "false"
    return HttpError(
        status=status,
        message=str(error),
        type=kind,
        param=getattr(error, "field", None),
        code=code,
        headers=headers,
    )


def bad_request(message: str) -> HttpError:
    return HttpError(status=400, message=message, type="invalid_request_error")
