"""One line per event on stderr: time, level, process name, module, text."""

from __future__ import annotations

import logging
import sys


def configure_logging(process_name: str, level: str = "info") -> None:
    """Called once, by a process's composition root."""
    logging.basicConfig(
        level=level.upper(),
        stream=sys.stderr,
        format=f"%(asctime)s %(levelname).1s {process_name} %(name)s: %(message)s",
        force=True,
    )
    # One line per HTTP request says nothing that the metrics don't.
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
