"""All that a scrape of a router shows: its own figures, and those of the workers that it is connected to."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from router.fleet import Fleet
from router.fleet_metrics import FLEET_SERIES, FleetMetrics
from router.router_series import ROUTER_SERIES
from router.worker_metrics import TRANSFER_SERIES, TransferCollector

ALL_SERIES = (*ROUTER_SERIES, *FLEET_SERIES.values(), *TRANSFER_SERIES)


def add_fleet(registry: CollectorRegistry, fleet: Fleet) -> None:
    """From now on scrapes also show what the fleet's workers report."""
    registry.register(FleetMetrics(fleet.workers))
    registry.register(TransferCollector(fleet.load_reports))
