"""`python -m benchmarks.speed.engines NAME`: one engine, told what to do on its standard input."""

from __future__ import annotations

import sys
from importlib import import_module

from benchmarks.speed.engines.protocol import serve

if __name__ == "__main__":
    serve(import_module(f"benchmarks.speed.engines.{sys.argv[1]}_engine").load)
