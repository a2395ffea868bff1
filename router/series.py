"""What one series of `/metrics` is: its name, its labels and its help, told once for collectors and documentation.

Knows no figure and where none comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


class Kind(StrEnum):
    """The type, as a scrape tells it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """`values` are all that it may have; empty where they are no fixed set, and `meaning` says then what they are."""

    name: str
    values: tuple[str, ...] = ()
    meaning: str = ""

    def __post_init__(self) -> None:
        assert bool(self.values) != bool(self.meaning)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """`name` is the one that queries use; a histogram's has `_bucket`, `_sum` or `_count` behind it there. `help` says
    the unit. `buckets` are a histogram's upper bounds."""

    name: str
    kind: Kind
    help: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        assert self.name.endswith("_total") == (self.kind is Kind.COUNTER)
        assert bool(self.buckets) == (self.kind is Kind.HISTOGRAM)

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(label.name for label in self.labels)

    @property
    def sample_names(self) -> tuple[str, ...]:
        """The names that its samples have in a scrape."""
        if self.kind is Kind.HISTOGRAM:
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)

    def counter(self, registry: CollectorRegistry) -> Counter:
        assert self.kind is Kind.COUNTER
        return Counter(self.name, self.help, self.label_names, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        assert self.kind is Kind.GAUGE
        return Gauge(self.name, self.help, self.label_names, registry=registry)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        assert self.kind is Kind.HISTOGRAM
        return Histogram(self.name, self.help, self.label_names, buckets=self.buckets, registry=registry)

    def family(self) -> CounterMetricFamily | GaugeMetricFamily:
        """Empty, for a collector that reads its figures when it is scraped."""
        assert self.kind is not Kind.HISTOGRAM
        family_type = CounterMetricFamily if self.kind is Kind.COUNTER else GaugeMetricFamily
        return family_type(self.name, self.help, labels=self.label_names)
