"""Health, readiness, metrics."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from router.generation import ModelCard
from tests.support.scripted_generator import ScriptedGenerator


async def test_health_answers_whatever_the_fleet_does(calling):
    async with calling(not_ready="no workers") as client:
        assert (await client.get("/health")).status_code == 200


async def test_ready_says_why_not(calling):
    async with calling(not_ready="no decode worker yet") as client:
        response = await client.get("/ready")
        assert (response.status_code, response.json()["reason"]) == (503, "no decode worker yet")
    async with calling() as client:
        assert (await client.get("/ready")).status_code == 200


async def test_metrics_are_prometheus_text(calling):
    async with calling(ScriptedGenerator()) as client:
        response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    names = {family.name for family in text_string_to_metric_families(response.text)}
    assert {"slipstream_ttft_seconds", "slipstream_active_requests"} <= names


async def test_a_model_whose_lengths_are_not_known_yet_is_listed_without_them(calling):
    class WithoutWorkers(ScriptedGenerator):
        def models(self):
            return (ModelCard(id="tiny", max_model_len=None, vocab_size=None, created_s=1),)

    async with calling(WithoutWorkers()) as client:
        (model,) = (await client.get("/v1/models")).json()["data"]
    assert model == {"id": "tiny", "object": "model", "created": 1, "owned_by": "slipstream"}
