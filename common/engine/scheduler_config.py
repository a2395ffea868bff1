"""Limits of one engine's batch and queue."""

from __future__ import annotations

from dataclasses import dataclass

from common.config import EngineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    max_num_seqs: int = 64  # choices in the batch at most
    max_num_batched_tokens: int = 2048  # tokens that one step computes at most
    max_num_waiting: int = 256  # legs in the queue at most
    output_forecast_tokens: int | None = None  # outputs that a credit counts on; None: learned

    @classmethod
    def from_engine_config(cls, config: EngineConfig, *, max_num_batched_tokens: int) -> SchedulerConfig:
        """The step's size depends on the device where the config leaves it open."""
        return cls(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_waiting=config.max_num_waiting,
        )
