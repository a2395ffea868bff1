"""What workers report of their KV transfers, as Prometheus counters of the router that scrapes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from protos import worker_pb2


class TransferCollector(Collector):
    """`loads` gives the last report of each worker, by its id; it is called by whoever scrapes, in any thread."""

    def __init__(self, loads: Callable[[], Mapping[str, worker_pb2.LoadReport]]) -> None:
        self._loads = loads

    def collect(self) -> Iterator[CounterMetricFamily]:
        loads = self._loads()
        yield _family(
            "slipstream_worker_sent_bytes",
            "KV bytes that a worker sent, by what carried them",
            ((worker_id, load.sent_bytes_by_transport) for worker_id, load in loads.items()),
        )
        yield _family(
            "slipstream_transport_fallbacks",
            "Transfers whose transport failed, so that gRPC carried their blocks",
            ((worker_id, load.transport_fallbacks) for worker_id, load in loads.items()),
        )


def _family(name: str, text: str, counts: Iterable[tuple[str, Mapping[str, int]]]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=["worker", "transport"])
    for worker_id, by_transport in counts:
        for transport, count in by_transport.items():
            family.add_metric([worker_id, transport], count)
    return family
