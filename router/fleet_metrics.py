"""What the workers report of themselves, as metrics of the router that hears it."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from router.fleet import Fleet

# Field of LoadReport → what it counts. Gauges say what is, counters what has been.
GAUGES = {
    "num_running": "Requests in a worker's batch",
    "num_waiting": "Requests in a worker's queue",
    "num_swapped": "Requests whose KV waits in a worker's host memory",
    "num_blocks": "KV blocks of a worker",
    "num_free_blocks": "KV blocks of a worker that are empty, or cached and free to take",
    "num_host_blocks": "Host blocks of a worker for KV that is swapped out",
    "num_free_host_blocks": "Host blocks of a worker that are free",
    "index.num_points": "Points of the prefix index that a worker holds",
    "index.num_pending": "Changes that a worker has not told the prefix index yet",
    "index.num_away_shards": "Shards of the prefix index that do not answer a worker",
}
COUNTERS = {
    "num_preemptions": "Requests that lost their KV to others",
    "num_swap_outs": "Times that a request's KV was moved to host memory",
    "swapped_out_blocks": "KV blocks copied to host memory",
    "swapped_in_blocks": "KV blocks copied back from host memory",
    "index.num_dropped": "Points that a worker did not tell the prefix index, for want of room there",
    "index.num_registrations": "Times that a worker told a shard of the prefix index all that it holds",
}


class FleetMetrics(Collector):
    """Reads the last load reports when it is scraped. One series per worker and figure; none for workers that are not
    connected, whose reports are stale."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        handles = [handle for handle in self._fleet.workers() if handle.attachment.connected]
        for kind, fields in ((GaugeMetricFamily, GAUGES), (CounterMetricFamily, COUNTERS)):
            for field, text in fields.items():
                name = f"slipstream_worker_{field.replace('num_', '').replace('.', '_')}"
                figure = attrgetter(field)
                family = kind(name, text, labels=["worker"])
                for handle in handles:
                    family.add_metric([handle.info.worker_id], figure(handle.load_report))
                yield family
