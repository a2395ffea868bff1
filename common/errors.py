"""The one tree of errors. Each class names one gRPC status; the net layer maps it, nobody else does."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """gRPC status names. Their HTTP codes are the router's business."""

    CANCELLED = "CANCELLED"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NOT_FOUND = "NOT_FOUND"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    UNAVAILABLE = "UNAVAILABLE"
    DATA_LOSS = "DATA_LOSS"
    INTERNAL = "INTERNAL"


class SlipstreamError(Exception):
    """Root of all errors that leave a component."""

    status = Status.INTERNAL


class InvalidRequestError(SlipstreamError):
    """The caller sent something that can't be served. `field` is the request's field."""

    status = Status.INVALID_ARGUMENT

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class ModelNotFoundError(SlipstreamError):
    """A model of that name is not served here."""

    status = Status.NOT_FOUND

    def __init__(self, model: str, served: tuple[str, ...]) -> None:
        known = ", ".join(served) if served else "none yet"
        super().__init__(f"model: {model!r} is not served here (served: {known})")
        self.field = "model"


class NotFoundError(SlipstreamError):
    """What was asked for is not here, or not remembered any more. `field` is the request's field."""

    status = Status.NOT_FOUND

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class UnauthenticatedError(SlipstreamError):
    """The caller did not say who it is, or nobody here knows it."""

    status = Status.UNAUTHENTICATED


class PermissionDeniedError(SlipstreamError):
    """The caller is known, and what it asks for is not its to ask."""

    status = Status.PERMISSION_DENIED


class OverloadedError(SlipstreamError):
    """No room now. `retry_after_s` is a hint in seconds."""

    status = Status.RESOURCE_EXHAUSTED

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DeadlineExceededError(SlipstreamError):
    """The request's deadline passed."""

    status = Status.DEADLINE_EXCEEDED


class RequestCancelledError(SlipstreamError):
    """The caller went away, or reads nothing any more."""

    status = Status.CANCELLED


class UnavailableError(SlipstreamError):
    """A peer that is needed does not answer, or no worker is ready."""

    status = Status.UNAVAILABLE


class DrainingError(UnavailableError):
    """This router is about to stop: another one, or the next to come, takes the request."""


class TransferError(SlipstreamError):
    """KV blocks did not arrive as they were sent."""

    status = Status.DATA_LOSS


class StaleTicketError(SlipstreamError):
    """A ticket is unknown, ended, or of another generation."""

    status = Status.FAILED_PRECONDITION


class IncompatibleWorkerError(SlipstreamError):
    """A worker's layout, keys or protocol don't fit the fleet's."""

    status = Status.FAILED_PRECONDITION


class EngineError(SlipstreamError):
    """A step raised. The request that caused it fails alone."""

    status = Status.INTERNAL


class IntegrityError(SlipstreamError):
    """An invariant of the block pool or of the tickets is broken: a bug of ours."""

    status = Status.INTERNAL


class ConfigError(SlipstreamError):
    """A setting is wrong. `field` is its name as in TOML; the message says what it may be."""

    status = Status.INVALID_ARGUMENT

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class UnsupportedModelError(SlipstreamError):
    """The model's architecture, or a feature of it, is not built."""

    status = Status.FAILED_PRECONDITION


class InsufficientMemoryError(SlipstreamError):
    """The model or its KV cache does not fit. The message names flags and values that would."""

    status = Status.FAILED_PRECONDITION
