"""How long the steps of a modelled worker take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol

from common.cost import PrefillWork, StepTimes


class Line(NamedTuple):
    """Seconds of a step as the batch's KV grows."""

    base_s: float
    kv_token_s: float

    def at(self, num_kv_tokens: float) -> float:
        return self.base_s + self.kv_token_s * num_kv_tokens


class StepModel(Protocol):
    """`decode_lines`: a decode step of so many requests takes the longest of these, and there are at most two."""

    def prefill_step_s(self, work: PrefillWork) -> float: ...

    def decode_lines(self, num_requests: int) -> Sequence[Line]: ...


@dataclass(frozen=True, slots=True)
class LinearModel:
    """Step times as workers measure and report them."""

    times: StepTimes

    def prefill_step_s(self, work: PrefillWork) -> float:
        times = self.times
        return times.step_s + times.prefill_token_s * work.num_tokens + times.prefill_pair_s * work.num_pairs

    def decode_lines(self, num_requests: int) -> Sequence[Line]:
        times = self.times
        return (Line(times.step_s + times.decode_request_s * num_requests, times.decode_kv_token_s),)


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineModel:
    """A step takes as long as its arithmetic or its memory traffic, whichever is more, and an overhead.

    Per GPU: `peak_flops`, `memory_bytes_per_s`; the model is spread evenly over `num_gpus`. Efficiencies are the
    shares of the peaks that are reached. After Williams et al., Roofline (2009).
    """

    num_gpus: int
    peak_flops: float
    linear_efficiency: float
    attention_efficiency: float
    memory_bytes_per_s: float
    memory_efficiency: float
    num_parameters: float
    bytes_per_parameter: float
    num_layers: int
    num_q_heads: int
    head_dim: int
    kv_bytes_per_token: float
    step_overhead_s: float

    def __post_init__(self) -> None:
        for one in fields(self):
            value: Any = getattr(self, one.name)
            least = 0.0 if one.name == "step_overhead_s" else 1e-12
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
                raise ValueError(f"{one.name}: must be a number above 0, is {value!r}")
            if one.name.endswith("efficiency") and value > 1:
                raise ValueError(f"{one.name}: must be at most 1, is {value!r}")

    def prefill_step_s(self, work: PrefillWork) -> float:
        arithmetic_s = self._token_s * work.num_tokens + self._pair_s * work.num_pairs
        return max(arithmetic_s, self._weights_s) + self.step_overhead_s

    def decode_lines(self, num_requests: int) -> Sequence[Line]:
        kv_token_s = self.kv_bytes_per_token / self._memory
        return (
            Line(self.step_overhead_s + self._weights_s, kv_token_s),
            Line(self.step_overhead_s + self._token_s * num_requests, self._pair_s),
        )

    @property
    def _memory(self) -> float:
        return self.num_gpus * self.memory_bytes_per_s * self.memory_efficiency

    @property
    def _weights_s(self) -> float:
        return self.num_parameters * self.bytes_per_parameter / self._memory

    @property
    def _token_s(self) -> float:
        """A multiplication and an addition per parameter."""
        return 2 * self.num_parameters / (self.num_gpus * self.peak_flops * self.linear_efficiency)

    @property
    def _pair_s(self) -> float:
        """Both products of attention, per layer."""
        num_flops = 4 * self.num_layers * self.num_q_heads * self.head_dim
        return num_flops / (self.num_gpus * self.peak_flops * self.attention_efficiency)


def prefill_s(model: StepModel, num_tokens: int, num_cached_tokens: int, chunk_tokens: int) -> float:
    """A prompt computed alone, in chunks. At least one token is computed."""
    seconds = 0.0
    start = min(num_cached_tokens, num_tokens - 1)
    while start < num_tokens:
        size = min(chunk_tokens, num_tokens - start)
        seconds += model.prefill_step_s(PrefillWork.of(size, start))
        start += size
    return seconds


def span_s(lines: Sequence[Line], num_requests: int, num_kv_tokens: int, num_steps: int) -> float:
    """So many decode steps in a row, each request's KV one token longer in each."""
    if num_steps <= 0:
        return 0.0
    if len(lines) == 1:
        return _line_span_s(lines[0], num_requests, num_kv_tokens, num_steps)
    first, second = lines
    lead_s = first.at(num_kv_tokens) - second.at(num_kv_tokens)
    growth_s = (first.kv_token_s - second.kv_token_s) * num_requests
    longer, other = (first, second) if lead_s > 0 or (lead_s == 0 and growth_s >= 0) else (second, first)
    num_before = num_steps
    if lead_s * growth_s < 0:
        num_before = min(num_steps, math.ceil(-lead_s / growth_s))
    seconds = _line_span_s(longer, num_requests, num_kv_tokens, num_before)
    num_after = num_steps - num_before
    return seconds + _line_span_s(other, num_requests, num_kv_tokens + num_requests * num_before, num_after)


def num_steps_within(lines: Sequence[Line], num_requests: int, num_kv_tokens: int, seconds: float, most: int) -> int:
    """The fewest steps that take at least `seconds`; at most `most`."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if span_s(lines, num_requests, num_kv_tokens, middle) >= seconds:
            high = middle
        else:
            low = middle + 1
    return low


def _line_span_s(line: Line, num_requests: int, num_kv_tokens: int, num_steps: int) -> float:
    grown = num_requests * (num_steps * (num_steps - 1) // 2)
    return num_steps * line.base_s + line.kv_token_s * (num_steps * num_kv_tokens + grown)
