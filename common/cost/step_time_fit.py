"""Fits StepTimes to a worker's own steps as they run.

Recursive least squares with forgetting (Ljung, System Identification, section 11.2), each step weighted by its
own duration, so that the error is relative: a chunk of seconds does not drown thousands of decode steps.
"""

from __future__ import annotations

from common.cost.step_times import DecodeWork, PrefillWork, StepTimes

# Units that bring the five kinds of work to like sizes, so that the arithmetic is well conditioned.
_UNITS = (1.0, 1e3, 1e6, 1e1, 1e4)
_FORGETTING = 0.998
# How far from the prior a coefficient may be, relative to the duration of a step, before steps speak.
_PRIOR_VARIANCE = 1e2
_MAX_VARIANCE = 1e4
# A step this many times longer than expected was interrupted: it counts as if it had been that long.
_OUTLIER = 4.0
_MIN_STEPS_FOR_OUTLIERS = 32
_MIN_STEP_S = 1e-6


class StepTimeFit:
    """One per engine; one thread. Starts from a prior, such as the warm-up's or a profile."""

    def __init__(self, prior: StepTimes) -> None:
        self._weights = [
            prior.step_s * _UNITS[0],
            prior.prefill_token_s * _UNITS[1],
            prior.prefill_pair_s * _UNITS[2],
            prior.decode_request_s * _UNITS[3],
            prior.decode_kv_token_s * _UNITS[4],
        ]
        # Scaled by the prior itself: a coefficient is uncertain by about its own size.
        self._covariance = [
            [_PRIOR_VARIANCE * max(weight, 1e-9) ** 2 if row == column else 0.0 for column in range(5)]
            for row, weight in enumerate(self._weights)
        ]
        self._ceilings = [_MAX_VARIANCE * max(weight, 1e-9) ** 2 for weight in self._weights]
        self._num_steps = 0

    def add(self, prefill: PrefillWork, decode: DecodeWork, elapsed_s: float) -> None:
        """A step that ran."""
        row = (
            1.0,
            prefill.num_tokens / _UNITS[1],
            prefill.num_pairs / _UNITS[2],
            decode.num_requests / _UNITS[3],
            decode.num_kv_tokens / _UNITS[4],
        )
        expected_s = _dot(row, self._weights)
        if self._num_steps >= _MIN_STEPS_FOR_OUTLIERS and expected_s > 0:
            elapsed_s = min(elapsed_s, _OUTLIER * expected_s)
        self._num_steps += 1
        scale = max(elapsed_s, _MIN_STEP_S)
        relative = [value / scale for value in row]
        self._update(relative, (elapsed_s - expected_s) / scale)

    def times(self) -> StepTimes:
        """The fit now. A coefficient that noise drove below zero reads as zero."""
        step_s, token_s, pair_s, request_s, kv_token_s = (
            max(0.0, weight / unit) for weight, unit in zip(self._weights, _UNITS, strict=True)
        )
        return StepTimes(
            step_s=step_s,
            prefill_token_s=token_s,
            prefill_pair_s=pair_s,
            decode_request_s=request_s,
            decode_kv_token_s=kv_token_s,
            num_steps=self._num_steps,
        )

    def _update(self, row: list[float], error: float) -> None:
        """`error` is in units of the step's duration, as `row` is; the noise of one step has variance 1."""
        spread = [_dot(line, row) for line in self._covariance]
        denominator = _FORGETTING + _dot(spread, row)
        for index in range(5):
            self._weights[index] += spread[index] / denominator * error
        for index in range(5):
            for other in range(5):
                reduced = self._covariance[index][other] - spread[index] * spread[other] / denominator
                self._covariance[index][other] = reduced / _FORGETTING
        self._limit()

    def _limit(self) -> None:
        """Work that never comes must not grow ever more uncertain, or its first step would overturn everything."""
        for index, ceiling in enumerate(self._ceilings):
            variance = self._covariance[index][index]
            if variance > ceiling:
                shrink = (ceiling / variance) ** 0.5
                for other in range(5):
                    self._covariance[index][other] *= shrink
                    self._covariance[other][index] *= shrink


def _dot(left: list[float] | tuple[float, ...], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))
