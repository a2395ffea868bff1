"""From the times of tokens to the numbers that are compared."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.speed.request import Answer

MS = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """`compute` takes the answers of one batch, and the tokens of each prompt."""

    name: str
    unit: str
    higher_is_better: bool
    compute: Callable[[Sequence[Answer], int], float]


def output_tokens_per_s(answers: Sequence[Answer], prompt_tokens: int) -> float:
    return sum(len(one.times_s) for one in answers) / max(one.times_s[-1] for one in answers)


def prefill_tokens_per_s(answers: Sequence[Answer], prompt_tokens: int) -> float:
    return len(answers) * prompt_tokens / max(one.times_s[0] for one in answers)


def step_ms(answers: Sequence[Answer], prompt_tokens: int) -> float:
    """A decode step of the whole batch: measured while every request decodes."""
    begin_s = max(one.times_s[0] for one in answers)
    end_s = min(one.times_s[-1] for one in answers)
    num_tokens = sum(begin_s < time_s <= end_s for one in answers for time_s in one.times_s)
    if not num_tokens:
        raise ValueError("the requests of the batch never decoded at the same time")
    return MS * (end_s - begin_s) * len(answers) / num_tokens


def ttft_ms(answers: Sequence[Answer], prompt_tokens: int) -> float:
    return MS * statistics.median(one.ttft_s for one in answers)


def tpot_ms(answers: Sequence[Answer], prompt_tokens: int) -> float:
    return MS * statistics.median(one.tpot_s for one in answers)


def first_gap_p95(answers: Sequence[Answer], prompt_tokens: int) -> float:
    """The gap between tokens 1 and 2 in parts of the median TPOT."""
    return quantile([one.gaps_s[0] for one in answers], 0.95) / statistics.median(one.tpot_s for one in answers)


def quantile(values: Sequence[float], share: float) -> float:
    """The least of the values that `share` of them do not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def _metric(compute: Callable[[Sequence[Answer], int], float], unit: str, higher_is_better: bool) -> Metric:
    return Metric(name=compute.__name__, unit=unit, higher_is_better=higher_is_better, compute=compute)


OUTPUT_TOKENS_PER_S = _metric(output_tokens_per_s, "output tokens/s", True)
PREFILL_TOKENS_PER_S = _metric(prefill_tokens_per_s, "prefill tokens/s", True)
STEP_MS = _metric(step_ms, "ms per decode step", False)
TTFT_MS = _metric(ttft_ms, "TTFT ms", False)
TPOT_MS = _metric(tpot_ms, "TPOT ms", False)
FIRST_GAP_P95 = _metric(first_gap_p95, "gap 1 to 2 / TPOT, p95", False)
