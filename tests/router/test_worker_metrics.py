"""Transfers of workers in the router's metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from protos import worker_pb2
from router.worker_metrics import TransferCollector


def test_what_workers_report_is_counted_by_worker_and_transport() -> None:
    loads = {
        "prefill-0": worker_pb2.LoadReport(
            sent_bytes_by_transport={"shm": 100, "grpc": 7}, transport_fallbacks={"shm": 2}
        ),
        "decode-0": worker_pb2.LoadReport(),
    }
    registry = CollectorRegistry()
    registry.register(TransferCollector(lambda: loads))

    def value(name: str, transport: str) -> float | None:
        return registry.get_sample_value(name, {"worker": "prefill-0", "transport": transport})

    assert value("slipstream_worker_sent_bytes_total", "shm") == 100
    assert value("slipstream_worker_sent_bytes_total", "grpc") == 7
    assert value("slipstream_transport_fallbacks_total", "shm") == 2
    assert value("slipstream_transport_fallbacks_total", "grpc") is None
    loads["prefill-0"].transport_fallbacks["shm"] += 1
    assert value("slipstream_transport_fallbacks_total", "shm") == 3
