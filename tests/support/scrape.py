"""What a scrape of a router may show: the series of the documentation, and no other."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from router.scraped import ALL_SERIES
from router.series import Series

SAMPLE_NAMES = frozenset(name for series in ALL_SERIES for name in series.sample_names)


def assert_documented(text: str) -> None:
    """All series are there with their types and helps, none beside them, and no label or value that is not told."""
    families = {family.name: family for family in text_string_to_metric_families(text)}
    told = {series.name.removesuffix("_total"): series for series in ALL_SERIES}
    assert families.keys() == told.keys()
    for name, series in told.items():
        family = families[name]
        assert (family.type, family.documentation) == (series.kind, series.help)
        for sample in family.samples:
            assert sample.name in series.sample_names
            _assert_labels(sample, series)


def _assert_labels(sample: Sample, series: Series) -> None:
    labels = {name: value for name, value in sample.labels.items() if name != "le"}
    assert labels.keys() == set(series.label_names), sample
    for label in series.labels:
        assert not label.values or labels[label.name] in label.values, sample
