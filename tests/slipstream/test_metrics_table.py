from __future__ import annotations

import re
from pathlib import Path

from router.planning.plan import PlanKind, PlanReason
from router.planning.prefix_miss import MissCause
from router.scraped import ALL_SERIES
from slipstream.metrics_table import METRICS_TABLE, metrics_table
from tests.support.scrape import SAMPLE_NAMES

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENT = DOCS / "metrics.md"


def test_every_series_has_one_row() -> None:
    table = metrics_table()
    for series in ALL_SERIES:
        assert table.count(f"| `{series.name}` | {series.kind} |") == 1


def test_the_documentation_has_the_metrics_of_the_code() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert METRICS_TABLE.put_into(text) == text, "run `make docs`"


def test_documents_name_series_that_exist() -> None:
    known = SAMPLE_NAMES.union(series.name for series in ALL_SERIES)
    for path in (DOCS.parent / "README.md", *DOCS.glob("*.md")):
        assert set(re.findall(r"\bslipstream_\w+", path.read_text(encoding="utf-8"))) <= known, path


def test_routing_tells_what_its_label_values_mean() -> None:
    text = (DOCS / "routing.md").read_text(encoding="utf-8")
    for value in (*PlanKind, *PlanReason, *MissCause):
        assert re.search(rf"^\|.*`{value}`.* \|", text, re.MULTILINE), value
