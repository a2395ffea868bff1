"""What a person touches: the command `slipstream`, the Python client, the one-machine launcher.

Names are imported when they are first used, so that `slipstream --help` does not load gRPC; torch is never loaded.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from common.errors import (
        ConfigError,
        DeadlineExceededError,
        InvalidRequestError,
        ModelNotFoundError,
        NotFoundError,
        OverloadedError,
        PermissionDeniedError,
        RequestCancelledError,
        SlipstreamError,
        UnauthenticatedError,
        UnavailableError,
    )
    from router.generation import ChoiceDelta, ModelCard, RouteHint, RouteTaken, Timings, Usage
    from slipstream.async_client import AsyncClient
    from slipstream.client import Client
    from slipstream.generation import Choice, Generation, GenerationDelta

_MODULES = {
    "common.errors": (
        "ConfigError",
        "DeadlineExceededError",
        "InvalidRequestError",
        "ModelNotFoundError",
        "NotFoundError",
        "OverloadedError",
        "PermissionDeniedError",
        "RequestCancelledError",
        "SlipstreamError",
        "UnauthenticatedError",
        "UnavailableError",
    ),
    "router.generation": ("ChoiceDelta", "ModelCard", "RouteHint", "RouteTaken", "Timings", "Usage"),
    "slipstream.async_client": ("AsyncClient",),
    "slipstream.client": ("Client",),
    "slipstream.generation": ("Choice", "Generation", "GenerationDelta"),
}

__all__ = [
    "AsyncClient",
    "Choice",
    "ChoiceDelta",
    "Client",
    "ConfigError",
    "DeadlineExceededError",
    "Generation",
    "GenerationDelta",
    "InvalidRequestError",
    "ModelCard",
    "ModelNotFoundError",
    "NotFoundError",
    "OverloadedError",
    "PermissionDeniedError",
    "RequestCancelledError",
    "RouteHint",
    "RouteTaken",
    "SlipstreamError",
    "Timings",
    "UnauthenticatedError",
    "UnavailableError",
    "Usage",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'slipstream' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
