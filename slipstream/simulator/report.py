"""The figures of a run, by name."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from slipstream.simulator.measurements import percentile
from slipstream.simulator.offered_load import OfferedLoad
from slipstream.simulator.simulation import Outcome

PERCENTILES = (50, 90, 95, 99)

Figures = Mapping[str, float | int]


def figures(outcome: Outcome, offered: OfferedLoad) -> Figures:
    """Flat; seconds, bytes, tokens as the names say. Percentiles are left out where nothing was measured."""
    measured = outcome.measurements
    duration_s = outcome.duration_s or 1.0
    decode_busy_s = sum(outcome.decode_busy_s)
    return {
        "num_requests": offered.num_requests,
        "num_answered": measured.num_answered,
        "num_rejected": measured.num_rejected,
        "hit_rate": measured.num_hit_blocks / measured.num_blocks if measured.num_blocks else 0.0,
        "hit_rate_ceiling": offered.hit_rate,
        "busiest_over_mean": _busiest_over_mean(outcome.prefill_busy_s),
        "busiest_over_mean_tokens": _busiest_over_mean(outcome.prefill_tokens),
        "offered_utilization": offered.utilization(len(outcome.prefill_busy_s)),
        "prefill_utilization": sum(outcome.prefill_busy_s) / len(outcome.prefill_busy_s) / duration_s,
        "decode_utilization": decode_busy_s / max(1, len(outcome.decode_busy_s)) / duration_s,
        "decode_waiting_share": _share(sum(outcome.decode_waiting_token_s), sum(outcome.decode_kv_token_s)),
        "decode_batch_mean": sum(outcome.decode_requests_s) / decode_busy_s if decode_busy_s else 0.0,
        **_distribution("ttft", measured.ttft_s),
        **_distribution("tpot", measured.tpot_s),
        **_distribution("e2e", measured.e2e_s),
        **_distribution("hand_over", measured.hand_over_s),
        "goodput_share": measured.num_good / max(1, offered.num_requests),
        "goodput_requests_per_s": measured.num_good / duration_s,
        "requests_per_s": measured.num_answered / duration_s,
        "output_tokens_per_s": measured.num_new_tokens / duration_s,
        "transferred_bytes": round(measured.num_transferred_bytes),
        "num_refusals": measured.num_refusals,
        "num_owed_maps": outcome.num_owed_maps,
        "num_lost_attempts": measured.num_lost,
        "duration_s": outcome.duration_s,
    }


def _distribution(name: str, values: array[float]) -> Figures:
    if not values:
        return {}
    ordered = sorted(values)
    result = {f"{name}_mean_s": sum(ordered) / len(ordered)}
    return result | {f"{name}_p{share}_s": percentile(ordered, share / 100) for share in PERCENTILES}


def _busiest_over_mean(values: Sequence[float] | Sequence[int]) -> float:
    total = sum(values)
    return max(values) / (total / len(values)) if total else 1.0


def _share(part: float, rest: float) -> float:
    return part / (part + rest) if part + rest else 0.0
