"""What the workers report of themselves, as metrics of the router that hears it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from router.series import Kind, Label, Series
from router.worker_handle import WorkerHandle

WORKER = Label(name="worker", meaning="a worker's id")

# Field of LoadReport → what it counts. Gauges say what is, counters what has been.
GAUGES = {
    "num_running": "Choices of requests in a worker's batch",
    "num_waiting": "Requests in a worker's queue",
    "num_swapped": "Choices of requests whose KV waits in a worker's host memory",
    "num_blocks": "KV blocks that a worker has, in use or not",
    "num_free_blocks": "KV blocks of a worker that are empty, or cached and free to take",
    "num_host_blocks": "KV blocks for which a worker has host memory, to swap out to",
    "num_free_host_blocks": "KV blocks of a worker's host memory that are free",
    "index.num_points": "Points of the prefix index (one each index_stride tokens of a prefix) that a worker holds",
    "index.num_pending": "Changes of its points that a worker has not told the prefix index yet",
    "index.num_away_shards": "Shards of the prefix index that do not answer a worker now",
}
COUNTERS = {
    "num_preemptions": "Times that a worker gave a request's KV up for want of blocks, to be computed again",
    "num_swap_outs": "Times that a worker moved a request's KV to host memory for want of blocks",
    "swapped_out_blocks": "KV blocks that a worker copied to host memory",
    "swapped_in_blocks": "KV blocks that a worker copied back from host memory",
    "index.num_dropped": "Points that a worker did not tell the prefix index, because it has too many or the server is "
    "full",
    "index.num_registrations": "Times that a worker told a shard of the prefix index all that it holds: once for each "
    "shard at its start, then whenever a shard had lost it",
}


def _series(kind: Kind, field: str, text: str) -> Series:
    name = f"slipstream_worker_{field.replace('num_', '').replace('.', '_')}"
    return Series(name=f"{name}_total" if kind is Kind.COUNTER else name, kind=kind, help=text, labels=(WORKER,))


# By field of LoadReport.
FLEET_SERIES = {
    **{field: _series(Kind.GAUGE, field, text) for field, text in GAUGES.items()},
    **{field: _series(Kind.COUNTER, field, text) for field, text in COUNTERS.items()},
}


class FleetMetrics(Collector):
    """Reads the last load reports when it is scraped. One series per worker and figure; none for workers that are not
    connected, whose reports are stale. `workers` is called by whoever scrapes, in any thread."""

    def __init__(self, workers: Callable[[], Iterable[WorkerHandle]]) -> None:
        self._workers = workers

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        handles = [handle for handle in self._workers() if handle.attachment.connected]
        for field, series in FLEET_SERIES.items():
            figure = attrgetter(field)
            family = series.family()
            for handle in handles:
                family.add_metric([handle.info.worker_id], figure(handle.load_report))
            yield family
