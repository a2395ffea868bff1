"""The tables of all metrics for the documentation: `python -m slipstream.metrics_table [--write FILE|--check FILE]`.

Generated from what the collectors are made of, so that a scrape's help and the documentation are one text.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from router.fleet_metrics import WORKER
from router.scraped import ALL_SERIES
from router.series import Label, Series
from slipstream.generated_text import GeneratedText


def metrics_table() -> str:
    """A Markdown table of what routers measure, and one of what they hear from workers."""
    of_workers = [series for series in ALL_SERIES if WORKER in series.labels]
    of_router = [series for series in ALL_SERIES if WORKER not in series.labels]
    return "".join((*_table("Of the router", of_router), "\n", *_table("Of each worker", of_workers)))


def _table(title: str, rows: Iterable[Series]) -> Iterator[str]:
    yield f"### {title}\n\n"
    yield "| name | type | labels | meaning |\n"
    yield "|---|---|---|---|\n"
    for series in rows:
        labels = "; ".join(_label(label) for label in series.labels)
        buckets = ". Buckets: " + ", ".join(f"{bound:g}" for bound in series.buckets) if series.buckets else ""
        yield f"| `{series.name}` | {series.kind} | {labels} | {series.help}{buckets} |\n"


def _label(label: Label) -> str:
    return f"`{label.name}`: " + (", ".join(f"`{value}`" for value in label.values) or label.meaning)


METRICS_TABLE = GeneratedText(name="metrics", make=metrics_table)

if __name__ == "__main__":
    sys.exit(METRICS_TABLE.run())
