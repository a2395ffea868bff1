"""What a command says when no router answers, or none to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from common.errors import UnauthenticatedError, UnavailableError


@contextmanager
def reaching_a_router() -> Iterator[None]:
    """Adds what a newcomer may do about it when there is no connection; what a router says stands as it is."""
    try:
        yield
    except UnauthenticatedError as error:
        raise UnauthenticatedError(f"{error}\nHere: --api-key, or SLIPSTREAM_API_KEY.") from None
    except UnavailableError as error:
        from slipstream.connection import HandshakeError, RouterUnreachableError  # loads gRPC, as whoever raised it did

        if not isinstance(error, RouterUnreachableError) or isinstance(error, HandshakeError):
            raise
        raise UnavailableError(f"{error}\nIs a router running there? `slipstream up` starts one.") from None
