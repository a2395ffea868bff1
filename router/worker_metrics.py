"""What workers report of their KV transfers, as Prometheus counters of the router that scrapes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from common.config import TRANSPORTS
from protos import worker_pb2
from router.fleet_metrics import WORKER
from router.series import Kind, Label, Series

FALLBACK = "grpc"  # what the others fall back to

SENT_BYTES = Series(
    name="slipstream_worker_sent_bytes_total",
    kind=Kind.COUNTER,
    help="Bytes of KV that a worker sent to others, moves between decode workers included, by what carried them",
    labels=(WORKER, Label(name="transport", values=TRANSPORTS)),
)
FALLBACKS = Series(
    name="slipstream_transport_fallbacks_total",
    kind=Kind.COUNTER,
    help="Transfers out of a worker whose transport failed, so that gRPC carried their blocks, by what failed",
    labels=(WORKER, Label(name="transport", values=tuple(name for name in TRANSPORTS if name != FALLBACK))),
)
TRANSFER_SERIES = (SENT_BYTES, FALLBACKS)


class TransferCollector(Collector):
    """`loads` gives the last report of each worker, by its id; it is called by whoever scrapes, in any thread."""

    def __init__(self, loads: Callable[[], Mapping[str, worker_pb2.LoadReport]]) -> None:
        self._loads = loads

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        loads = self._loads()
        yield _family(SENT_BYTES, ((worker_id, load.sent_bytes_by_transport) for worker_id, load in loads.items()))
        yield _family(FALLBACKS, ((worker_id, load.transport_fallbacks) for worker_id, load in loads.items()))


def _family(series: Series, counts: Iterable[tuple[str, Mapping[str, int]]]) -> CounterMetricFamily | GaugeMetricFamily:
    family = series.family()
    for worker_id, by_transport in counts:
        for transport, count in by_transport.items():
            family.add_metric([worker_id, transport], count)
    return family
