from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from common.errors import (
    InvalidRequestError,
    OverloadedError,
    PermissionDeniedError,
    SlipstreamError,
    UnauthenticatedError,
)
from common.request import FinishReason, SamplingParams
from router.access.tenant import Tenant
from router.generation import GenerateCommand, TextPrompt, Usage
from router.metrics import RouterMetrics, outcome_of
from router.planning.plan import PlanKind, PlanReason
from router.planning.prefix_miss import MissCause, PrefixMiss
from router.router_series import OUTCOMES, ROUTER_SERIES
from router.scraped import ALL_SERIES, add_fleet
from tests.support.conducting import Scene, hand_over_to
from tests.support.scrape import assert_documented
from tests.support.scripted_generator import ROUTE, TIMINGS

USAGE = Usage(prompt_tokens=10, cached_tokens=4, generated_tokens=8)


def command(*, canary: bool = False, n: int = 1) -> GenerateCommand:
    return GenerateCommand(request_id="r", prompt=TextPrompt(text="x"), sampling=SamplingParams(n=n), canary=canary)


def value(metrics: RouterMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def run_one(metrics: RouterMetrics, request: GenerateCommand, **observed: Any) -> None:
    metrics.request_started(request)
    metrics.count_decision(request, PlanKind.SPLIT, PlanReason.LONG_TAIL)
    metrics.count_lost_attempt(request)
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
    assert value(metrics, "slipstream_route_decisions_total", decision="split", reason="long_tail") == 1
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


def test_every_error_that_ends_a_request_has_a_documented_outcome():
    def tree(kind: type[SlipstreamError]) -> set[type[SlipstreamError]]:
        return {kind}.union(*map(tree, kind.__subclasses__()))

    at_the_door = {UnauthenticatedError, PermissionDeniedError}
    for kind in tree(SlipstreamError) - at_the_door:
        assert outcome_of(kind.__new__(kind)) in OUTCOMES
    assert {outcome_of(None, reason) for reason in FinishReason} <= set(OUTCOMES)


def test_every_series_is_made_and_has_a_name_of_its_own():
    made = {metric.name for metric in RouterMetrics().registry.collect()}
    assert made == {series.name.removesuffix("_total") for series in ROUTER_SERIES}
    assert len({series.name for series in ALL_SERIES}) == len(ALL_SERIES)


async def test_a_live_router_shows_what_is_documented_and_nothing_else(scene: Scene) -> None:
    add_fleet(scene.metrics.registry, scene.core._fleet)
    assert_documented(scene.metrics.render()[0].decode())
    scene.prefill.on_submit = hand_over_to(scene.decode, 11, 12)
    await scene.ask(ttft_slo_s=60.0, tpot_slo_s=1e-9, tenant=Tenant(name="a"))
    with pytest.raises(InvalidRequestError):
        await scene.ask(prompt=scene.prompt(100_000))
    scene.metrics.count_misses(command(), PrefixMiss(tokens=dict.fromkeys(MissCause, 1)))
    scene.metrics.count_lost_attempt(command())
    scene.decode.report_load(
        num_swapped=3, sent_bytes_by_transport={"shm": 1, "grpc": 2}, transport_fallbacks={"shm": 1}
    )
    handle = scene.core._fleet.find("decode-a")
    assert handle is not None
    while not handle.load_report.num_swapped:
        await asyncio.sleep(0.01)
    text = scene.metrics.render()[0].decode()
    assert_documented(text)
    bare = {family.name for family in text_string_to_metric_families(text) if not family.samples}
    assert bare == set(), "a series that this test does not bring about is not looked at"


def test_a_tenant_s_share_is_told_apart():
    metrics = RouterMetrics()
    metrics.observe_tenant(Tenant(name="a"), "stop", 30)
    metrics.observe_tenant(Tenant(name="a"), "cancelled", 5)
    metrics.observe_tenant(None, "stop", 1000)
    assert value(metrics, "slipstream_tenant_tokens_total", tenant="a") == 35
    assert value(metrics, "slipstream_tenant_requests_total", tenant="a", outcome="stop") == 1
    assert value(metrics, "slipstream_tenant_tokens_total", tenant="") is None
