"""The dashboard and the alert rules read series that there are."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import yaml

from router.scraped import ALL_SERIES
from tests.support.deployed import ROOT, strings_in, text_of
from tests.support.scrape import SAMPLE_NAMES

BY_SAMPLE = {name: series for series in ALL_SERIES for name in series.sample_names}
# What Prometheus itself adds, and the upper bound of a bucket.
ADDED_LABELS = {"instance", "job", "le"}


def panels() -> list[dict[str, Any]]:
    dashboard = json.loads(text_of("grafana-dashboard.json"))
    found: list[dict[str, Any]] = dashboard["panels"]
    return found


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(text_of("prometheus-rules.yaml"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def queries() -> list[str]:
    shown = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    return shown + [rule["expr"] for rule in rules()]


def test_queries_read_series_that_exist() -> None:
    for query in queries():
        names = re.findall(r"\bslipstream_\w+", query)
        assert names and set(names) <= SAMPLE_NAMES, query


def test_texts_name_series_that_exist() -> None:
    known = SAMPLE_NAMES.union(series.name for series in ALL_SERIES)
    documents = (json.loads(text_of("grafana-dashboard.json")), yaml.safe_load(text_of("prometheus-rules.yaml")))
    for text in strings_in(documents[0] | documents[1]):
        assert set(re.findall(r"\bslipstream_\w+", text)) <= known, text


def test_queries_choose_by_labels_and_values_that_exist() -> None:
    num_matchers = 0
    for query in queries():
        for name, inside in re.findall(r"\b(slipstream_\w+)\{([^}]*)\}", query):
            known = {label.name: label for label in BY_SAMPLE[name].labels}
            for label, values in re.findall(r'(\w+)\s*[=!]~?\s*"([^"]*)"', inside):
                num_matchers += 1
                assert set(values.split("|")) <= set(known[label].values), query
    assert num_matchers >= 3


def test_queries_group_by_labels_that_exist() -> None:
    for query in queries():
        names = re.findall(r"\bslipstream_\w+", query)
        known = ADDED_LABELS.union(*(BY_SAMPLE[name].label_names for name in names))
        grouped = {part.strip() for inside in re.findall(r"\bby \(([^)]*)\)", query) for part in inside.split(",")}
        assert grouped <= known, query


def test_a_histogram_s_quantile_is_taken_of_its_buckets_and_a_counter_is_never_read_bare() -> None:
    for query in queries():
        for name in re.findall(r"\bslipstream_\w+", query):
            bare = BY_SAMPLE[name].kind == "gauge"
            rated = re.search(rf"\b(rate|increase)\({name}(\{{[^}}]*\}})?\[", query) is not None
            assert rated != bare, query
            assert name.endswith("_bucket") == ("histogram_quantile" in query), query


def test_legends_and_texts_show_labels_that_exist() -> None:
    known = ADDED_LABELS.union(label for series in ALL_SERIES for label in series.label_names)
    legends = [target["legendFormat"] for panel in panels() for target in panel.get("targets", ())]
    shown = {label for legend in legends for label in re.findall(r"\{\{\s*(\w+)\s*\}\}", legend)}
    annotations = [text for rule in rules() for text in rule["annotations"].values()]
    shown |= {label for text in annotations for label in re.findall(r"\$labels\.(\w+)", text)}
    assert {"outcome", "worker", "transport"} <= shown <= known


def test_panels_have_places_and_numbers_of_their_own() -> None:
    cells: Counter[tuple[int, int]] = Counter()
    for panel in panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells.update(
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        )
    assert max(cells.values()) == 1
    numbers = [panel["id"] for panel in panels()]
    assert len(set(numbers)) == len(numbers)


def test_what_to_watch_first_is_on_the_dashboard() -> None:
    document = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    first = document.partition("## Watch these first")[2].partition("\n## ")[0]
    shown = {name for panel in panels() for text in strings_in(panel) for name in re.findall(r"\bslipstream_\w+", text)}
    assert len(shown) >= 20
    assert {name for name in re.findall(r"\bslipstream_\w+", first) if name in SAMPLE_NAMES} <= shown


def test_every_rule_is_whole() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) >= 10
    for rule in rules():
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
