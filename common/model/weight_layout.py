"""In which layouts a worker keeps its weights: rows for torch's products of many tokens, panels for steps of a few."""

from __future__ import annotations

from enum import Enum


class WeightLayout(Enum):
    """Panels exist with the native kernels alone; without them everything is rows."""

    ROWS = "rows"  # a prefill worker: its steps have many tokens
    PANELS = "panels"  # a decode worker: a step of many tokens is its exception, and works, slower
    BOTH = "both"  # one copy of each, for a worker that does both all the time
