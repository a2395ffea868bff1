from __future__ import annotations

from typing import Any

import pytest

from common.errors import InvalidRequestError, OverloadedError
from common.request import FinishReason, SamplingParams
from router.access.tenant import Tenant
from router.generation import GenerateCommand, TextPrompt, Usage
from router.metrics import RouterMetrics, outcome_of
from tests.support.scripted_generator import ROUTE, TIMINGS

USAGE = Usage(prompt_tokens=10, cached_tokens=4, generated_tokens=8)


def command(*, canary: bool = False, n: int = 1) -> GenerateCommand:
    return GenerateCommand(request_id="r", prompt=TextPrompt(text="x"), sampling=SamplingParams(n=n), canary=canary)


def value(metrics: RouterMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def run_one(metrics: RouterMetrics, request: GenerateCommand, **observed: Any) -> None:
    metrics.request_started(request)
    metrics.count_decision(request, "split", "cheapest")
    metrics.count_retry(request, "worker_lost")
    metrics.observe(request, **{"usage": USAGE, "timings": TIMINGS, "route": ROUTE, "outcome": "stop"} | observed)
    metrics.request_ended(request)


def test_a_request_is_counted_and_timed():
    metrics = RouterMetrics()
    run_one(metrics, command())
    assert value(metrics, "slipstream_requests_total", outcome="stop") == 1
    assert value(metrics, "slipstream_prompt_tokens_total") == 10
    assert value(metrics, "slipstream_cached_tokens_total") == 4
    assert value(metrics, "slipstream_generated_tokens_total") == 8
    assert value(metrics, "slipstream_transfer_bytes_total") == 4096
    assert value(metrics, "slipstream_preemptions_total") == 2
    assert value(metrics, "slipstream_ttft_seconds_sum") == pytest.approx(0.03)
    assert value(metrics, "slipstream_queue_seconds_sum") == pytest.approx(0.01)
    assert value(metrics, "slipstream_e2e_seconds_sum") == pytest.approx(0.1)
    assert value(metrics, "slipstream_tpot_seconds_sum") == pytest.approx(0.01)
    assert value(metrics, "slipstream_retries_total", reason="worker_lost") == 1
    assert value(metrics, "slipstream_route_decisions_total", decision="split", reason="cheapest") == 1
    assert value(metrics, "slipstream_active_requests") == 0


def test_choices_share_the_time_per_token():
    metrics = RouterMetrics()
    run_one(metrics, command(n=4))
    assert value(metrics, "slipstream_tpot_seconds_sum") == pytest.approx(0.07)


def test_canaries_leave_no_trace():
    metrics = RouterMetrics()
    before = metrics.render()[0]
    run_one(metrics, command(canary=True))
    assert metrics.render()[0] == before


def test_series_have_no_time_of_birth_beside_them():
    metrics = RouterMetrics()
    run_one(metrics, command())
    assert b"_created" not in metrics.render()[0]


def test_a_request_that_failed_is_only_counted():
    metrics = RouterMetrics()
    run_one(metrics, command(), usage=None, timings=None, route=None, outcome="unavailable")
    assert value(metrics, "slipstream_requests_total", outcome="unavailable") == 1
    assert value(metrics, "slipstream_ttft_seconds_count") == 0


def test_two_routers_do_not_share_a_registry():
    first, second = RouterMetrics(), RouterMetrics()
    first.set_index_degraded(3)
    assert value(first, "slipstream_index_degraded") == 1
    assert value(first, "slipstream_index_degraded_shards") == 3
    assert value(second, "slipstream_index_degraded") == 0


@pytest.mark.parametrize(
    ("error", "finish_reason", "outcome"),
    [
        (None, FinishReason.LENGTH, "length"),
        (None, None, "stop"),
        (OverloadedError("full"), None, "resource_exhausted"),
        (InvalidRequestError("n", "no"), None, "invalid_argument"),
        (GeneratorExit(), None, "cancelled"),
        (ValueError("bug"), None, "internal"),
    ],
)
def test_outcomes(error, finish_reason, outcome):
    assert outcome_of(error, finish_reason) == outcome


def test_a_tenant_s_share_is_told_apart():
    metrics = RouterMetrics()
    metrics.observe_tenant(Tenant(name="a"), "stop", 30)
    metrics.observe_tenant(Tenant(name="a"), "cancelled", 5)
    metrics.observe_tenant(None, "stop", 1000)
    assert value(metrics, "slipstream_tenant_tokens_total", tenant="a") == 35
    assert value(metrics, "slipstream_tenant_requests_total", tenant="a", outcome="stop") == 1
    assert value(metrics, "slipstream_tenant_tokens_total", tenant="") is None
