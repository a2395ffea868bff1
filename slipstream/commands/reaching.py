"""What a command says when no router answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from common.errors import UnavailableError


@contextmanager
def reaching_a_router() -> Iterator[None]:
    """Adds what a newcomer may do about it to UnavailableError."""
    try:
        yield
    except UnavailableError as error:
        raise UnavailableError(f"{error}\nIs a router running there, and ready? `slipstream up` starts one.") from None
