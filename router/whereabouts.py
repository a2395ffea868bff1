"""Where a choice of a request is at the moment, for whoever asks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from common.request import WorkerId


class Stage(StrEnum):
    QUEUED = "queued"  # waits for a worker with room
    RESERVING = "reserving"  # a decode worker was asked for room
    PREFILLING = "prefilling"  # a worker has it, and the first token has not come
    HANDING_OVER = "handing_over"  # the first token is there, the KV not yet where it is wanted
    DECODING = "decoding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Workers are those of the attempt; an attempt of 0: none was made yet."""

    stage: Stage
    attempt: int = 0
    prefill_worker: WorkerId | None = None
    decode_worker: WorkerId | None = None


QUEUED = Whereabouts(stage=Stage.QUEUED)
