"""A choice that a worker has stopped, with its KV, so that it goes on elsewhere without being computed again."""

from __future__ import annotations

from dataclasses import dataclass

from common.request import RequestId, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptChoice:
    """`attempt` is the one that was stopped. It holds blocks at the worker until it is moved or cancelled."""

    worker_id: WorkerId
    request_id: RequestId
    attempt: int
    choice_index: int
