"""What workers report is scraped from the router."""

from __future__ import annotations

import asyncio
from operator import attrgetter

from prometheus_client import CollectorRegistry

from protos import worker_pb2
from router.fleet_metrics import COUNTERS, GAUGES, FleetMetrics
from tests.support.conducting import Scene


async def test_a_series_for_each_worker_that_is_connected(scene: Scene) -> None:
    fleet = scene.core._fleet
    registry = CollectorRegistry()
    registry.register(FleetMetrics(fleet.workers))
    scene.decode.report_load(num_swapped=3, num_swap_outs=7, swapped_out_blocks=20, swapped_in_blocks=15)
    handle = fleet.find("decode-a")
    assert handle is not None
    while not handle.load_report.num_swapped:
        await asyncio.sleep(0.01)

    def value(name: str, worker: str = "decode-a") -> float | None:
        return registry.get_sample_value(name, {"worker": worker})

    assert value("slipstream_worker_swapped") == 3
    assert value("slipstream_worker_swap_outs_total") == 7
    assert value("slipstream_worker_swapped_out_blocks_total") == 20
    assert value("slipstream_worker_swapped_in_blocks_total") == 15
    assert value("slipstream_worker_blocks", "decode-b") == 100
    scene.other_decode.takes_streams = False
    scene.other_decode.drop_stream()
    while sum(one.attachment.connected for one in fleet.workers()) == 3:
        await asyncio.sleep(0.01)
    assert value("slipstream_worker_blocks", "decode-b") is None


def test_every_metric_is_a_field_of_the_report() -> None:
    report = worker_pb2.LoadReport()
    assert all(attrgetter(field)(report) == 0 for field in GAUGES.keys() | COUNTERS.keys())
