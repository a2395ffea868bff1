from __future__ import annotations

import pytest

from slipstream.simulator.measurements import percentile
from slipstream.simulator.offered_load import offered_load
from slipstream.simulator.report import figures
from slipstream.simulator.trace import TraceRequest
from tests.support.simulated import ListedTrace, round_profile, scenario, simulate


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.95, 0.99, 1.0)] == [1.0, 50.0, 95.0, 99.0, 100.0]
    assert percentile([3.0], 0.99) == 3.0


def test_the_offered_load_is_that_of_one_cache_in_the_order_of_the_trace() -> None:
    requests = [
        TraceRequest(1.0, 30, 2, [1, 2, 3]),
        TraceRequest(2.0, 30, 3, [1, 2, 9]),
        TraceRequest(5.0, 10, 1, [1]),
    ]
    offered = offered_load(ListedTrace(requests), round_profile())
    assert (offered.num_requests, offered.num_tokens, offered.num_new_tokens) == (3, 70, 6)
    assert (offered.num_hit_blocks, offered.num_blocks, offered.duration_s) == (3, 7, 4.0)
    assert offered.prefill_s == pytest.approx(0.031 + 0.011 + 0.002)
    assert offered.utilization(2) == pytest.approx(0.044 / 2 / 4)


def test_figures_are_flat_numbers() -> None:
    trace = ListedTrace([TraceRequest(0.0, 100, 1, range(10)), TraceRequest(0.0, 50, 1, range(10, 15))])
    given = scenario(num_prefill=2)
    found = figures(simulate(trace, given), offered_load(trace, given.profile))
    assert found["busiest_over_mean"] == pytest.approx(0.101 / 0.076)
    assert found["busiest_over_mean_tokens"] == pytest.approx(100 / 75)
    assert found["prefill_utilization"] == pytest.approx(0.152 / 2 / 0.101)
    assert found["ttft_mean_s"] == pytest.approx(0.076)
    assert found["goodput_share"] == 1.0
    assert "tpot_mean_s" not in found  # no answer had a second token
    assert all(isinstance(value, int | float) for value in found.values())
